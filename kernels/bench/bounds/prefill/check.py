"""Checks one variant of the skeleton and, when it is wrong, says which part is.

    python check.py --library libprefill.so --variant paged-gate

Small shapes against float64 first. If one is wrong, two probes follow: with every score 1 the
output is a running sum of V (only the product with V and the mask can be wrong), and with V a
shifted identity the output is a window of P itself (the scores, the gate or the key order).
"""

import os
import random

from absl import app, flags
import torch

import reference
import skeleton

FLAGS = flags.FLAGS
flags.DEFINE_string("library", None, "The compiled skeleton.", required=True)
flags.DEFINE_string("variant", None, "Name of the variant.", required=True)
flags.DEFINE_integer("seed", None, "Seed of the inputs; drawn and printed when left out.")

# batch, length, heads, kv_heads: around the tile sizes, and off them.
SHAPES = [(1, 64, 2, 1), (1, 128, 2, 1), (2, 130, 4, 2), (2, 256, 4, 2), (3, 200, 8, 4),
          (2, 391, 16, 8), (9, 520, 16, 8)]


def run(library: skeleton.Skeleton, variant: skeleton.Variant,
        inputs: skeleton.Inputs) -> torch.Tensor:
    out = torch.full_like(inputs.query, float("nan"))
    library.launch(variant, inputs, out)
    torch.cuda.synchronize()
    return out


def check_shapes(library: skeleton.Skeleton, variant: skeleton.Variant) -> bool:
    """Prints an error per shape; true when all are right and repeat to the bit."""
    right = True
    for shape in SHAPES:
        inputs = skeleton.make_inputs(*shape, gamma=torch.rand(shape[2]) + 0.5)
        out = run(library, variant, inputs)
        rows = torch.arange(inputs.length, device="cuda")
        found = [reference.errors(inputs, out, i, rows, variant.gated) for i in range(inputs.batch)]
        worst = max(found, key=lambda x: (x[0] != x[0], x[0]))
        same_bits = all(torch.equal(out, run(library, variant, inputs)) for _ in range(5))
        good = all(reference.is_right(x) for x in found) and same_bits
        print(f"  {shape}: error {worst[0]:.2e}, torch {worst[1]:.2e}, largest x{worst[2]:.2f}, "
              f"repeats {'alike' if same_bits else 'DIFFER'} {'ok' if good else 'WRONG'}")
        right = right and good
    return right


def probe_values(library: skeleton.Skeleton, variant: skeleton.Variant, length: int) -> None:
    """Every p is 1: output row i is the sum of the first i + 1 rows of V."""
    unit = torch.zeros(length + skeleton.SLACK_ROWS, 2, skeleton.HEAD_DIM, device="cuda",
                       dtype=torch.bfloat16)
    unit[..., 0] = 1
    value = torch.randint(-1, 2, (length + skeleton.SLACK_ROWS, 1, skeleton.HEAD_DIM),
                          device="cuda").to(torch.bfloat16)
    inputs = skeleton.make_inputs(1, length, 2, 1, query=unit[:length].contiguous(),
                                  key=unit[:, :1].contiguous(), value=value, sigma=0.0, alpha=1e4)
    out = run(library, variant, inputs).float()
    want = value[:length].float().cumsum(0).expand(-1, 2, -1)
    wrong = (out != want) & ((out - want).abs() > 0.01 * want.abs() + 1e-3) | out.isnan()
    print(f"  values probe, length {length}: {int(wrong.sum())} of {wrong.numel()} wrong; by head "
          f"{wrong.sum((0, 2)).tolist()}, by 16 rows {wrong.sum((1, 2)).split(16)[0].tolist()}, "
          f"by 8 columns {wrong.sum((0, 1)).view(-1, 8).sum(1).tolist()}")


def probe_scores(library: skeleton.Skeleton, variant: skeleton.Variant, length: int) -> None:
    """V is an identity from key `first` on: the output is P's columns from there."""
    for first in range(0, length, skeleton.HEAD_DIM):
        value = torch.zeros(length + skeleton.SLACK_ROWS, 1, skeleton.HEAD_DIM, device="cuda",
                            dtype=torch.bfloat16)
        keys = min(skeleton.HEAD_DIM, length - first)
        value[first:first + keys, 0] = torch.eye(skeleton.HEAD_DIM, device="cuda")[:keys]
        inputs = skeleton.make_inputs(1, length, 2, 1, value=value)
        out = run(library, variant, inputs).double()
        rows = torch.arange(length, device="cuda")
        want = reference.attention_rows(inputs, 0, rows, variant.gated, torch.float64)
        wrong = ~((out - want).abs() <= 0.02 * want.abs() + 1e-2)
        print(f"  scores probe, keys from {first}: {int(wrong.sum())} of {wrong.numel()} wrong; by "
              f"key {wrong.sum((0, 1))[:32].tolist()}; rows wrong "
              f"{wrong.any(2).any(1).nonzero().flatten()[:16].tolist()}")
        if wrong.any():
            last = min(length - 1, first + keys - 1)
            got, exact = out[last:, 0].nan_to_num(9), want[last:, 0]
            nearest = (got[:, :, None] - exact[:, None, :]).abs().sum(0).argmin(1)
            print(f"    key found in column 0, 1, ...: {nearest.tolist()}")
            print(f"    row {last}: got {got[0, :8].tolist()} want {exact[0, :8].tolist()}")


def main(_) -> None:
    seed = FLAGS.seed if FLAGS.seed is not None else random.SystemRandom().randrange(1 << 30)
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = False
    library = skeleton.Skeleton(os.path.abspath(FLAGS.library))
    variant = next(x for x in library.variants if x.name == FLAGS.variant)
    print(f"{variant.name} (seed {seed})", flush=True)
    if check_shapes(library, variant):
        return
    for length in (64, 128, 256):
        probe_values(library, variant, length)
    probe_scores(library, variant, 256)
    raise SystemExit(1)


if __name__ == "__main__":
    app.run(main)
