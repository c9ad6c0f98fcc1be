#!/usr/bin/env bash
# `bazel test` with the arguments given, then one line that counts the test cases.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
log=$(mktemp)
trap 'rm -f "$log"' EXIT
./bazelw test "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
python3 tools/ci/count_tests.py --testlogs .bazel/testlogs <"$log" || exit 1
exit "$status"
