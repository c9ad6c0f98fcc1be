# What the runners' scripts share; they source it from the root of the checkout.

failed=()

# step COMMAND... runs it. One that fails is remembered: the later ones tell their part of the news.
step() {
  echo "== $*"
  "$@" || failed+=("$*")
}

# Says where the results are; ends the script, with 1 if a step failed.
finish() {
  echo "== results: the tests' in $PWD/.bazel/testlogs, reports in $PWD/results"
  ((${#failed[@]})) || exit 0
  printf '== FAILED: %s\n' "${failed[@]}" >&2
  exit 1
}
