"""The timeline of a step of known times."""

import pytest
import timeline
from gpu_trace import GpuWork, Step

STEP = Step(0, 0, 4, 4, [
    GpuWork("nvjet_a", 100.0, 130.0, True, True),
    GpuWork("flash::Fwd", 125.0, 140.0, True, True),
    GpuWork("nvjet_b", 150.0, 151.0, True, True),
    GpuWork("Memcpy DtoH", 155.0, 156.0, False, False),
])  # fmt: skip


def test_rows_are_from_the_first_kernel_by_kind():
    assert timeline.rows(STEP) == {
        "attention": [(25.0, 15.0)], "gemm": [(0.0, 30.0), (50.0, 1.0)], "copy": [(55.0, 1.0)]}


def test_it_is_an_image(tmp_path):
    timeline.draw(STEP, "decode", tmp_path / "step.png")
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")
    assert pytest.importorskip("PIL.Image").open(tmp_path / "step.png").width > 1000
