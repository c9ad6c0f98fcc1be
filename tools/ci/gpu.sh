#!/usr/bin/env bash
# What a runner with a GPU calls: the tests of all that runs on it, the gate that serves by every
# path, the attention kernels timed beside FlashAttention-3, then the commands that documents show.
# Without a GPU it fails: --config=gpu skips no test.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
source tools/ci/steps.sh
export ASYNCT_PYTHON_ENV=${ASYNCT_PYTHON_ENV:-cuda}
step tools/ci/test.sh --config=ci --config=gpu //kernels/... //backend/... //model/...
step ./bazelw run --config=ci --config=gpu //evals:smoke
step ./bazelw run --config=ci --config=gpu //kernels/bench -- --suite attention
step python3 tools/documents/commands.py gpu
step ./bazelw run --config=ci //tools/ci:ratio_table -- results
finish
