"""A build must fail on a register spill or a wgmma advisory, and on nothing else ptxas says."""

import pathlib
import sys

import nvcc_wrapper
import pytest

KERNEL = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4axpyPKfPfi' for 'sm_90a'
ptxas info    : Function properties for _Z4axpyPKfPfi
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, {stack} bytes cumulative stack size
"""
ADVISORY = ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
            "serialized due to insufficient register resources in function '_Z4axpyPKfPfi'\n")


def run(tmp_path: pathlib.Path, output: str, code: int = 0) -> tuple[int, str]:
    """Runs the wrapper on a compiler that prints `output`; returns its code and the report."""
    report = tmp_path / "report.txt"
    compiler = [sys.executable, "-c", f"import sys; sys.stderr.write({output!r}); sys.exit({code})"]
    return nvcc_wrapper.main(["--report", str(report), "--", *compiler]), report.read_text()


@pytest.mark.parametrize("stack", [0, 64])
def test_a_kernel_without_spills_passes_silently(tmp_path, capfd, stack):
    code, report = run(tmp_path, KERNEL.format(stack=stack, stores=0, loads=0))
    assert code == 0
    assert "Used 168 registers" in report
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("stores, loads", [(8, 12), (0, 4), (4, 0)])
def test_a_spill_fails_and_names_kernel_and_figures(tmp_path, capfd, stores, loads):
    clean = KERNEL.format(stack=0, stores=0, loads=0).replace("4axpy", "5clean")
    code, report = run(tmp_path, clean + KERNEL.format(stack=16, stores=stores, loads=loads))
    error = capfd.readouterr().err
    assert code == 1
    assert f"{stores} bytes of stores, {loads} bytes of loads, 16 bytes of stack" in error
    assert "axpy" in error and "clean" not in error
    assert "spill stores" in report


def test_serialised_wgmma_fails(tmp_path, capfd):
    code, _ = run(tmp_path, ADVISORY + KERNEL.format(stack=0, stores=0, loads=0))
    assert code == 1
    assert "C7510" in capfd.readouterr().err


def test_errors_and_warnings_of_the_compiler_pass_through(tmp_path, capfd):
    message = "axpy.cu(7): error: identifier \"kScale\" is undefined\n"
    code, report = run(tmp_path, "ptxas info    : 0 bytes gmem\n" + message, code=2)
    assert code == 2
    assert capfd.readouterr().err == message
    assert message in report
