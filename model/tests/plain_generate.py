"""Generates with vLLM as a user's program does: nothing of AsyncT is imported by hand.

    plain_generate.py REQUEST OUTPUTS

REQUEST is a pickle of (engine settings, prompts, sampling parameters); OUTPUTS becomes a pickle of
vLLM's outputs. A program of its own, for vLLM's processes find AsyncT by its entry point only.
"""

import pickle
import sys
from pathlib import Path

from vllm import LLM


def main(request: Path, outputs: Path) -> None:
    settings, prompts, sampling = pickle.loads(request.read_bytes())
    assert not any(name.startswith("asynct") for name in sys.modules)
    llm = LLM(**settings)
    outputs.write_bytes(pickle.dumps(llm.generate(prompts, sampling, use_tqdm=False)))


if __name__ == "__main__":  # vLLM's engine processes import this file again
    main(*map(Path, sys.argv[1:]))
