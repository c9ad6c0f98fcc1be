#!/usr/bin/env bash
# Whether the gate sees a broken kernel, on a runner with a GPU: breaks one source file after the
# other (kernels/include/asynct/broken.h) and wants //evals:smoke red, of what the path answers.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
source tools/ci/steps.sh
export ASYNCT_PYTHON_ENV=${ASYNCT_PYTHON_ENV:-cuda}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# red SOURCE PATH: the gate, on this path alone, with the kernels of SOURCE.cu broken.
red() {
  ./bazelw run --config=ci --config=gpu --define=broken="$1" //evals:smoke -- \
    --paths "$2" --notime --output "$folder/smoke.json" 2>&1 | tee "$folder/log"
  grep -q "^smoke: $2: log-probabilities are off" "$folder/log"
}

for source in decode_paged wgmma_bf16 qk_norm_rope_cache uclip_norm fused_add_uclip_norm \
  post_attn_pre_mlp_uclip_out relu_and_mul linear_add_uclip linear_relu_and_mul; do
  step red "$source" eager
done
step red mma mma
finish
