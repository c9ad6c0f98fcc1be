"""What a run leaves: rows, tables, JSON, plot; and GPU time by kind of kernel."""

import json
import random

import pytest
from asynct_evals.throughput import breakdown, report
from handwritten_trace import Trace
from rich.console import Console
from throughput_runs import result

LAYERS = 2


def shown(made_up) -> str:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(*report.tables(made_up))
    return capture.get()


def row(text: str, name: str) -> list[str]:
    """The cells of the last table's row of this name."""
    line = [line for line in text.splitlines() if line[2:].startswith(f"{name} ")][-1]
    return [cell.strip() for cell in line.strip("│ ").split("│")][1:]


@pytest.fixture
def phases(tmp_path, seed):
    """A prefill, then two decodes, of kernels of ours but for one of the other side's."""
    trace = Trace()
    trace.step(0.0, (3, 210, 0, 0))
    trace.launch(1.0, [("void asynct::prefill_mma::HP1PrefillMmaKernel<...>(...)", 10.0, 50.0)])
    trace.launch(2.0, [("void flash::FlashAttnFwdSm90<...>", 60.0, 5.0)])
    trace.launch(3.0, [("Memcpy HtoD", 66.0, 2.0)], call="cudaMemcpyAsync", cat="gpu_memcpy")
    for start in (1000.0, 2000.0):
        trace.step(start, (0, 0, 3, 3))
        trace.launch(start + 1, [
            (name, start + 10 + 100 * layer + offset, us) for layer in range(LAYERS)
            for name, offset, us in (("void asynct::decode::DecodePagedKernel<...>()", 0.0, 20.0),
                                     ("void flash::FlashAttnFwdSm90<...>", 20.0, 1.0),
                                     ("nvjet_tst", 30.0, 40.0),
                                     ("void asynct::UclipNormKernel<...>(...)", 70.0, 3.0),
                                     ("void asynct::ReluAndMulKernel<...>(...)", 73.0, 4.0))],
            call="cudaGraphLaunch")
        trace.launch(start + 2, [("_gumbel_sample_kernel", start + 300, 7.0)])
    return breakdown.phases(trace.write(tmp_path / "a.trace.json.gz", random.Random(seed)), LAYERS)


def test_gpu_time_by_group(phases):
    assert phases["prefill"]["groups"] == dict.fromkeys(breakdown.GROUPS, 0.0) | {
        "attention prefill": 55.0, "copies": 2.0}
    assert phases["decode"]["groups"] == dict.fromkeys(breakdown.GROUPS, 0.0) | {
        "attention decode": 42.0, "GEMM": 80.0, "norm and elementwise": 14.0,
        "sampler and step inputs": 7.0}
    assert phases["decode"]["launches_per_layer"] == 5
    assert phases["decode"]["in_graph"] == 5 * LAYERS


def test_rows():
    first, second = report.rows(result({}))
    assert first == {
        "scenario": "prefill", "model": "tiny", "dtype": "bfloat16", "quantization": None,
        "graphs": "eager", "ours_s": 1.6, "fa3_s": 2.0, "ratio": 1.0, "low": 0.8, "high": 1.2,
        "confidence": 0.75, "rounds": 3, "attention_zeros": 0.71}
    assert (second["scenario"], second["ratio"]) == ("decode", 0.5)


def test_the_table_of_ratios():
    text = shown(result({}, gpu=True))
    assert "tiny: its time over that of a softmax model on FlashAttention-3" in text
    assert "NVIDIA X1" in text and "71.0% of p are zero" in text
    assert row(text, "prefill") == ["1.6000", "2.0000", "1.000", "0.800 to 1.200", "3"]
    assert "FlashAttention-3" not in shown(result({}, gpu=False))


def test_the_table_of_gpu_time(phases):
    theirs = {"decode": phases["decode"]}
    text = shown(result({"decode": {"ours": phases, "fa3": theirs}}))
    assert row(text, "attention decode") == ["0", "42", "42"]
    assert row(text, "attention prefill") == ["55", "0", "0"]
    assert row(text, "of them in a graph") == ["0", "10", "10"]
    assert row(text, "launches a layer")[1:] == ["5", "5"]
    assert "prefill\n" not in text and "210 tokens" in text


def test_the_files(tmp_path, phases):
    made_up = result({"decode": {"ours": phases, "fa3": phases}})
    path, plot = report.save(made_up, tmp_path / "new" / "throughput.json")
    content = json.loads(path.read_text())
    assert content["rows"] == report.rows(made_up)
    assert content["machine"] == {"card": "NVIDIA X1"}
    assert content["settings"]["seed"] == 5 and content["settings"]["shape"]["hidden_size"] == 64
    assert content["settings"]["scenarios"][1]["prompt_tokens"] == [40, 5, 20]
    assert content["settings"]["rival"] == "vLLM's CPU attention"
    assert content["samples"]["decode"] == {"ours_s": [1.0] * 3, "fa3_s": [2.0] * 3}
    assert content["checks"]["prefill"] == {"error": 0.1, "eager": 0.1, "broken": 9.0}
    assert content["breakdown"]["decode"]["fa3"]["decode"]["groups"]["GEMM"] == 80.0
    assert plot == tmp_path / "new" / "throughput.png"
    assert plot.read_bytes().startswith(b"\x89PNG")
