"""Training rows cut from one long stream of worked problems that lies on the device as bytes.

Two kinds of row, both asked in lm-eval's gsm8k format:
  single  one problem, closed by <eos>: what a zero-shot prompt looks like;
  packed  problems one after another, cut at the row's end: what a few-shot prompt looks like.
The loss is on the answers, on <eos>, and in packed rows on what leads to the next question (STOP).
"""

from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import torch

from asynct_tiny.problems import DELIMITER, QUESTION, STOP, problems, worked
from asynct_tiny.tokenizer import EOS_ID, PAD_ID

IGNORED = -100  # cross_entropy's label for "no loss here"
_CHUNK = 10_000  # problems a worker makes from one seed


class Rows(NamedTuple):
    """inputs and labels, [B, T] int64; a label is the next token, or IGNORED."""

    inputs: torch.Tensor
    labels: torch.Tensor


class Corpus:
    """The stream of `count` problems of the training split.

    Args:
        count: problems to generate.
        seed: of the problems and of the rows drawn from them.
        longest: length of the longest row that will be asked for.
        device: where the stream lies and rows are made.
        workers: processes that generate.
    """

    def __init__(
        self, count: int, seed: int, *, longest: int, device: torch.device, workers: int = 1
    ):
        chunks = [
            (f"{seed}.{index}", min(_CHUNK, count - first))
            for index, first in enumerate(range(0, count, _CHUNK))
        ]
        if min(workers, len(chunks)) > 1:
            with get_context("forkserver").Pool(min(workers, len(chunks))) as pool:
                parts = pool.map(_encode, chunks, chunksize=1)
        else:
            parts = [_encode(chunk) for chunk in chunks]
        tokens, is_target, lengths = (np.concatenate(column) for column in zip(*parts))
        starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        self.usable = int(np.searchsorted(starts, len(tokens) - longest - 1, side="left"))
        if not self.usable:
            raise ValueError(f"{count} problems do not fill one row of {longest} bytes")
        self.tokens = torch.from_numpy(tokens).to(device)
        self.is_target = torch.from_numpy(is_target).to(device)
        self.starts = torch.from_numpy(starts).to(device)
        self.lengths = torch.from_numpy(lengths).to(device)
        self.generator = torch.Generator(device).manual_seed(seed)

    def packed(self, batch: int, length: int) -> Rows:
        """Rows of problems one after another, each starting with a question."""
        tokens, is_target, _ = self._windows(batch, length)
        return _shifted(tokens, is_target)

    def single(self, batch: int, length: int) -> Rows:
        """Rows of one problem each, closed by <eos> and padded."""
        tokens, is_target, end = self._windows(batch, length)
        position = torch.arange(length + 1, device=tokens.device)
        tokens = tokens.masked_fill(position == end, EOS_ID).masked_fill(position > end, PAD_ID)
        return _shifted(tokens, is_target & (position <= end))

    def _windows(self, batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """[batch, length + 1] tokens and targets from a random problem on, and where it ends."""
        device = self.tokens.device
        index = torch.randint(self.usable, (batch, 1), generator=self.generator, device=device)
        window = self.starts[index] + torch.arange(length + 1, device=device)
        end = self.lengths[index] - len(DELIMITER)
        return self.tokens[window].long(), self.is_target[window], end


def _shifted(tokens: torch.Tensor, is_target: torch.Tensor) -> Rows:
    labels = tokens.masked_fill(~is_target, IGNORED)
    return Rows(tokens[:, :-1].contiguous(), labels[:, 1:].contiguous())


def _encode(chunk: tuple[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One worker's problems as (bytes, which are targets, length of each), delimiters included."""
    seed, count = chunk
    texts, targets, lengths = [], [], []
    for problem in islice(problems(seed, "train"), count):
        text = (worked(problem) + DELIMITER).encode()
        is_target = np.ones(len(text), dtype=bool)
        is_target[len(STOP) : len(QUESTION.format(problem.question))] = False
        texts.append(text)
        targets.append(is_target)
        lengths.append(len(text))
    tokens = np.frombuffer(b"".join(texts), dtype=np.uint8)
    return tokens, np.concatenate(targets), np.array(lengths, dtype=np.int64)
