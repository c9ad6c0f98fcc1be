#!/usr/bin/env bash
# What a runner without a GPU calls: every test, two gates (the small checkpoint's accuracy, every
# path of PyTorch), then the commands that documents show.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
source tools/ci/steps.sh
step tools/ci/test.sh --config=ci //...
step ./bazelw run --config=ci //evals:gsm8k -- --at_least 0.95 --output results
step ./bazelw run --config=ci //evals:smoke
step python3 tools/documents/commands.py cpu
finish
