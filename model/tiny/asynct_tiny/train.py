"""Trains the small checkpoint and measures it; minutes on one GPU.

The run plans itself by wall time: --minutes covers everything, from start to the last evaluation,
and the learning rate follows the share of the time that has passed (with --steps, of the steps). At
every evaluation the model is saved, and OUTPUT/checkpoint is the best one so far, so a run that is
cut off still leaves a result. OUTPUT/run.json is the record of the run.
"""

import os
import shutil
import time
from pathlib import Path

import torch
from absl import app, flags
from asynct_model import AsyncTForCausalLM

from asynct_tiny import record
from asynct_tiny.corpus import Corpus
from asynct_tiny.exact_match import exact_match
from asynct_tiny.initialization import initialize
from asynct_tiny.saving import save
from asynct_tiny.sizes import tiny_config
from asynct_tiny.sparsity import sparsity
from asynct_tiny.tokenizer import MAX_LENGTH
from asynct_tiny.trainer import Optimisation, Trainer

_STARTED = time.monotonic()

FLAGS = flags.FLAGS
flags.DEFINE_string("output", None, "Directory for the checkpoint and the record.", required=True)
flags.DEFINE_string("commit", "unknown", "Commit that this program is of, for the record.")
flags.DEFINE_string("init_from", None, "Checkpoint directory to go on from, with a fresh schedule.")
flags.DEFINE_float("minutes", 9.0, "Wall time of the whole run.", lower_bound=0.0)
flags.DEFINE_float("final_seconds", 75.0, "Part of it kept for the last evaluation.", lower_bound=0)
flags.DEFINE_integer("steps", None, "Train for so many steps instead of by wall time.")
flags.DEFINE_integer("seed", 1, "Seed of weights, problems and rows.")
flags.DEFINE_integer("problems", 1_500_000, "Training problems to generate.", lower_bound=1)
flags.DEFINE_integer("single_rows", 256, "Rows of one problem in a step.", lower_bound=1)
flags.DEFINE_integer("single_length", 224, "Their length in bytes.", lower_bound=2)
flags.DEFINE_integer("packed_rows", 8, "Rows of many problems in a step.", lower_bound=1)
flags.DEFINE_integer("packed_length", MAX_LENGTH, "Their length in bytes.", lower_bound=2)
flags.DEFINE_float(
    "packed_from",
    0.3,
    "Share of the run after which packed rows join.",
    lower_bound=0,
    upper_bound=1,
)
flags.DEFINE_float("matrix_rate", Optimisation.matrix_rate, "Learning rate of the matrices.")
flags.DEFINE_float("vector_rate", Optimisation.vector_rate, "Learning rate of all vectors.")
flags.DEFINE_integer("evaluations", 6, "Evaluations on a sample while training.", lower_bound=0)
flags.DEFINE_integer("sample", 128, "Problems in such a sample.", lower_bound=1)
flags.DEFINE_integer("held_out", 500, "Problems in the last evaluation.", lower_bound=1)
flags.DEFINE_boolean("compile", None, "Use torch.compile; by default on a GPU only.")

_EVALUATION_SEED = 20_000  # of held-out problems; any seed is disjoint from training
_LOG_EVERY = 50  # steps


def seconds() -> float:
    """Wall time since the program started."""
    return time.monotonic() - _STARTED


def log(text: str) -> None:
    print(f"[{seconds():6.1f}s] {text}", flush=True)


class Run:
    """One training run: the model, its data, and what is written about it."""

    def __init__(self, output: Path):
        self.output = output
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(FLAGS.seed)
        torch.set_float32_matmul_precision("high")  # TF32: exact for the scores' bfloat16 factors
        self.record = dict(
            machine=record.machine(self.device),
            arguments={
                flag.name: flag.value
                for flag in FLAGS.get_key_flags_for_module(__name__)
                if flag.name != "output"
            },
            curve=[],
            evaluations=[],
        )
        log(f"{self.record['machine']}")
        self.corpus = Corpus(
            FLAGS.problems,
            FLAGS.seed,
            longest=max(FLAGS.single_length, FLAGS.packed_length),
            device=self.device,
            workers=os.cpu_count() or 1,
        )
        log(f"{FLAGS.problems:,} problems, {self.corpus.tokens.numel() / 1e6:.0f} MB")
        if FLAGS.init_from:
            model = AsyncTForCausalLM.from_pretrained(FLAGS.init_from, dtype=torch.float32)
        else:
            model = AsyncTForCausalLM(tiny_config())
            initialize(model)
        self.trainer = Trainer(
            model.to(self.device),
            Optimisation(matrix_rate=FLAGS.matrix_rate, vector_rate=FLAGS.vector_rate),
        )
        on_gpu = self.device.type == "cuda"
        if FLAGS.compile or (FLAGS.compile is None and on_gpu):
            for layer in model.model.layers:  # the layers share their code: one graph a row length
                layer.compile(dynamic=False)
        self.record["parameters"] = sum(p.numel() for p in self.trainer.parameters)
        log(f"{self.record['parameters']:,} parameters")
        self.best = -1.0

    def train(self) -> None:
        """Steps until the time or the steps are used up, with evaluations on the way."""
        window_start = seconds()
        for progress in (0.0, 1.0):  # compiles for both lengths of row
            self.step(progress)
        log(f"first steps took {seconds() - window_start:.1f}s")
        losses = []
        window_start = train_start = seconds()
        train_end = 60 * FLAGS.minutes - FLAGS.final_seconds
        while True:
            progress = (
                self.trainer.steps / FLAGS.steps
                if FLAGS.steps
                else (seconds() - train_start) / max(train_end - train_start, 1e-9)
            )
            if progress >= 1:
                break
            losses.append(self.step(progress))
            if self.trainer.steps % _LOG_EVERY == 0:
                rate = len(losses) / (seconds() - window_start)
                self.note(losses, rate, progress)
                losses, window_start = [], seconds()
            if progress * (FLAGS.evaluations + 1) >= len(self.record["evaluations"]) + 1:
                self.evaluate(FLAGS.sample)
                window_start = seconds() if not losses else window_start
        log(f"{self.trainer.steps} steps, {self.trainer.skipped} of them skipped")

    def step(self, progress: float) -> dict[str, float]:
        batches = {"single": self.corpus.single(FLAGS.single_rows, FLAGS.single_length)}
        if progress >= FLAGS.packed_from:
            batches["packed"] = self.corpus.packed(FLAGS.packed_rows, FLAGS.packed_length)
        return self.trainer.step(batches, progress)

    def note(self, losses: list[dict[str, float]], rate: float, progress: float) -> None:
        by_kind = {
            kind: sum(loss[kind] for loss in losses if kind in loss)
            / sum(kind in loss for loss in losses)
            for kind in losses[-1]
        }
        step = self.trainer.steps
        self.record["curve"].append(dict(step=step, seconds=round(seconds(), 1), **by_kind))
        if len(self.record["curve"]) % 4 == 1:
            shown = ", ".join(f"{loss:.4f} {kind}" for kind, loss in by_kind.items())
            log(f"step {step} ({progress:.0%}) loss {shown}; {rate:.1f} steps/s")

    def evaluate(self, count: int) -> dict:
        """Saves, reads the checkpoint back and scores it; the best one so far is kept."""
        latest, best = self.output / "latest", self.output / "checkpoint"
        save(self.trainer.model, latest)
        result = dict(step=self.trainer.steps, seconds=round(seconds(), 1), problems=count)
        result |= self.score(latest, count)
        total = result["0"] + result["8"]
        if total >= self.best:
            self.best = total
            shutil.copytree(latest, best, dirs_exist_ok=True)
        self.record["evaluations"].append(result)
        record.write(self.output, self.record)
        scores = f"{result['0']:.3f} zero-shot, {result['8']:.3f} with 8 shots"
        log(f"step {result['step']} exact match {scores}")
        return result

    def score(self, directory: Path, count: int) -> dict[str, float]:
        model = self.load(directory)
        return {
            str(shots): exact_match(model, count, shots, seed=_EVALUATION_SEED, batch=batch)
            for shots, batch in ((0, 512), (8, 64))
        }

    def load(self, directory: Path) -> AsyncTForCausalLM:
        model = AsyncTForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
        return model.to(self.device).eval()

    def finish(self) -> None:
        """Scores the best checkpoint on all held-out problems and measures its sparsity."""
        self.evaluate(FLAGS.sample)
        best = self.output / "checkpoint"
        self.record["final"] = dict(problems=FLAGS.held_out, **self.score(best, FLAGS.held_out))
        log(f"final exact match on {FLAGS.held_out}: {self.record['final']}")
        rows = self.corpus.packed(2, FLAGS.packed_length)
        layers = sparsity(self.load(best), rows.inputs)
        self.record["sparsity"] = [layer._asdict() for layer in layers]
        self.record["steps"] = self.trainer.steps
        self.record["skipped_steps"] = self.trainer.skipped
        self.record["seconds"] = round(seconds(), 1)
        record.write(self.output, self.record)
        for index, layer in enumerate(layers):
            log(f"layer {index}: zeros in attention {layer.attention:.1%}, in MLP {layer.mlp:.1%}")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    output = Path(FLAGS.output)
    output.mkdir(parents=True, exist_ok=True)
    run = Run(output)
    run.train()
    run.finish()
    log(f"checkpoint: {output / 'checkpoint'}; record: {output / record.RECORD_FILE}")


if __name__ == "__main__":
    app.run(main)
