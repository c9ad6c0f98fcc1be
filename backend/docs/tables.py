"""Writes the tables of backend.md: the settings, and what benches wrote to backend/results.

    bazel run //backend/docs:tables
"""

import dataclasses
import json
import os
import pathlib

import documents
from asynct_vllm.context_parallel.shard import Shard
from asynct_vllm.settings import Settings
from documents import markdown

BACKEND = pathlib.Path(
    os.environ.get("BUILD_WORKSPACE_DIRECTORY", pathlib.Path(__file__).parents[2]), "backend")
DOCUMENT = BACKEND / "docs" / "backend.md"


def settings() -> str:
    return markdown(
        ["variable", "default", "meaning"],
        ([f"`{field.metadata['variable']}`", f"`{field.default}`", field.metadata["meaning"]]
         for field in dataclasses.fields(Settings)), text=3)


def torch_paths() -> str:
    record = json.loads((BACKEND / "results" / "torch_paths.json").read_text())
    return markdown(
        ["path", "indices of a step, ms", "a layer, ms", "range, ms", "speed over `loop`", "error"],
        ([f"`{row['path']}`", f"{1e3 * row['build_s']:.2f}", f"{1e3 * row['layer_s']:.1f}",
          f"{1e3 * row['low_s']:.1f} to {1e3 * row['high_s']:.1f}", f"{row['speedup']:.2f}",
          f"{row['error']:.0e}"] for row in record["rows"]))


def shared_rows() -> str:
    """What a token stored takes, over what it takes where nothing is shared, with a window of 3."""
    ranks = (2, 4)
    return markdown(
        ["interleave", *(f"rows a key, {count} ranks" for count in ranks)],
        ([str(interleave), *(f"{shard.block_rows(512) / 512:.3g}" for shard in (
            Shard(0, count, interleave, 3) for count in ranks))]
         for interleave in (1, 2, 8, 16, 64, 128)))


TABLES = {"settings": settings, "torch paths": torch_paths, "shared rows": shared_rows}

if __name__ == "__main__":
    documents.write([DOCUMENT], TABLES)
