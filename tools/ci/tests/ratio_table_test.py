"""The table in a pull request's comment, from reports as the benchmarks write them."""

import json

import pytest
import ratio_table

KERNEL = {"kind": "decode", "kernel": "hp1_decode_paged", "B": 32, "T_q": 1, "ctx": 4096, "H": 16,
          "H_kv": 8, "D": 128, "dtype": "bfloat16", "zeros": 0.5, "ours_us": 41.26,
          "fa3_us": 52.04, "ratio": 0.79285, "spread": 0.012, "error": 1e-3}
WRONG = KERNEL | {"kernel": "triton_decode", "ours_us": None, "ratio": None, "spread": None}
KERNELS = {"card": "NVIDIA H200", "commit": "0123456789abcdef", "rows": [KERNEL, WRONG]}
THROUGHPUT = {"machine": {"card": "NVIDIA H200", "commit": "0123456789abcdef"}, "rows": [
    {"scenario": "mixed", "model": "0.6b", "dtype": "bfloat16", "ours_s": 1.5, "fa3_s": 2.0,
     "ratio": 0.75, "low": 0.7, "high": 0.8, "confidence": 0.95, "rounds": 9}]}
NORMS = {"card": "NVIDIA H200", "rows": [{"operation": "dyht", "ratios": {"eager": 3.0}}]}


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    for name, report in {"kernels": KERNELS, "throughput": THROUGHPUT, "norms": NORMS}.items():
        path = tmp_path / "results" / "h200" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report))
    return tmp_path / "results"


def test_each_report_with_ratios_becomes_a_table(results):
    assert ratio_table.main(["results"]) == 0
    assert (results / "ratios.md").read_text() == """\
Our time over FlashAttention-3's, in the same run: below 1 ours is faster.

### h200/kernels: NVIDIA H200, commit 0123456789ab

| kernel | B | T_q | ctx | H | H_kv | D | zeros | ours_us | fa3_us | ratio | spread |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| hp1_decode_paged | 32 | 1 | 4096 | 16 | 8 | 128 | 0.5 | 41.3 | 52.0 | 0.793 | 1.2% |
| triton_decode | 32 | 1 | 4096 | 16 | 8 | 128 | 0.5 | - | 52.0 | - | - |

### h200/throughput: NVIDIA H200, commit 0123456789ab

| scenario | model | ours_s | fa3_s | ratio | low | high |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| mixed | 0.6b | 1.5000 | 2.0000 | 0.750 | 0.700 | 0.800 |
"""


def test_without_a_ratio_the_comment_says_so(tmp_path):
    assert ratio_table.main([str(tmp_path / "results")]) == 0
    assert "No benchmark" in (tmp_path / "results" / "ratios.md").read_text()


@pytest.mark.parametrize("content, why", [("{", "is not JSON"), ("[]", "holds no object")])
def test_a_broken_report_is_named(results, capsys, content, why):
    (results / "h200" / "kernels.json").write_text(content)
    assert ratio_table.main(["results"]) == 1
    said = capsys.readouterr().err
    assert "h200/kernels.json" in said and why in said
    assert not (results / "ratios.md").exists()
