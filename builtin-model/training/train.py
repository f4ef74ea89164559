"""Trains the built-in model, on a CUDA device or on the processor.

usage: python train.py RUN_FOLDER --minutes 6 --device cuda --workers 14 --out OUT_FOLDER
       python train.py RUN_FOLDER --minutes 80 --device cpu --workers 1 --rows 8

RUN_FOLDER holds everything the run writes: `checkpoint.pt` (the newest state) and `log.txt`. The same command again
continues the run where its newest checkpoint stands. OUT_FOLDER (if given) gets `model.safetensors` (bf16) every two minutes and
at the end, and the log, the scores and some misses. The learning rate follows the minutes trained, not the steps, so the
run ends in time on any machine; pauses, compiling and the measurement at the end don't count.
"""
import argparse
import json
import os
import pathlib
import time

import torch
import torch._dynamo
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import mixture
from data import ROW, Reservoir, attention_mask, tensors
from encode import Encoder
from evaluate import evaluate
from export import bf16_weights
from model import Qwen3, Shape
from muon import build_optimizers

MATRIX_LR = 0.02
OTHER_LR = 3e-3
WARMUP_STEPS = 80
DECAY_SHARE = 0.55  # of the run's time, at its end
ANSWER_SHARE = 0.4  # of a batch's tokens, at most, are answers
KEPT_ROWS = 150_000  # rows that the reservoir holds on a machine with a GPU
LOG_SECONDS = 15
CHECKPOINT_SECONDS = 120


def rate(progress: float, step: int) -> float:
    """The learning rate's factor: a short warm-up, a plateau, a straight fall to zero at the end."""
    return min(1.0, (step + 1) / WARMUP_STEPS, max(0.0, (1 - progress) / DECAY_SHARE))


class Run:
    """A training run: the network, its optimizers, how far it is, and the folder it is kept in."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.folder = options, options.folder
        self.device = options.device
        self.model = Qwen3(Shape()).to(self.device)
        self.optimizers = build_optimizers(self.model, MATRIX_LR, OTHER_LR)
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.lives = 0  # how often the run was started; part of the data's seed, so that no data repeats
        self.folder.mkdir(parents=True, exist_ok=True)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
        newest = self.folder / "checkpoint.pt"
        if newest.exists():
            self.restore(torch.load(newest, weights_only=True, map_location=self.device))
        elif options.begin_with:
            weights = {name: weight.float() for file in options.begin_with for name, weight in load_file(file).items()}
            self.model.load_state_dict(weights)
        self.lives += 1

    def restore(self, state: dict):
        self.model.load_state_dict(state["model"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(kept)
        for key in ("step", "tokens", "seconds", "lives"):
            setattr(self, key, state[key])

    def save(self):
        """Writes beside the old state first, so that a stop at any moment leaves a whole one."""
        state = {key: getattr(self, key) for key in ("step", "tokens", "seconds", "lives")}
        state["model"] = self.model.state_dict()
        state["optimizers"] = [optimizer.state_dict() for optimizer in self.optimizers]
        torch.save(state, self.folder / "checkpoint.pt.new")
        os.replace(self.folder / "checkpoint.pt.new", self.folder / "checkpoint.pt")
        if self.options.out:
            save_file(bf16_weights(state["model"]), self.options.out / "new.safetensors", metadata={"format": "pt"})
            os.replace(self.options.out / "new.safetensors", self.options.out / "model.safetensors")

    def log(self, text: str):
        line = f"{time.strftime('%H:%M:%S')} {self.seconds / 60:6.2f} min  step {self.step:5}  {self.tokens / 1e6:7.2f} M tokens  {text}"
        print(line, flush=True)
        for folder in filter(None, (self.folder, self.options.out)):
            with open(folder / "log.txt", "a") as file:
                file.write(line + "\n")

    @property
    def progress(self) -> float:
        return self.seconds / 60 / self.options.minutes

    def compile(self):
        """Compiles one layer (all share its code) and the head. Where that fails, PyTorch runs what it can't compile as it is."""
        torch._dynamo.config.suppress_errors = True
        torch._dynamo.config.cache_size_limit = 64
        torch.set_float32_matmul_precision("high")
        for layer in self.model.model.layers:
            layer.compile(dynamic=False)
        self.head_loss = torch.compile(self.head_loss, dynamic=False)

    def head_loss(self, hidden, places, targets, weights):
        logits = self.model.logits(hidden.reshape(-1, hidden.shape[-1])[places]).float()
        return (F.cross_entropy(logits, targets, reduction="none") * weights).sum() / weights.sum()

    def loss(self, batch):
        """The mean loss of the answers' tokens, by their weights."""
        ids, documents, places, targets, weights = tensors(batch, int(ANSWER_SHARE * ROW * self.options.rows), self.device)
        on_gpu = self.device == "cuda"
        mask = attention_mask(documents, torch.bfloat16 if on_gpu else torch.float32)
        with torch.autocast(self.device, torch.bfloat16, enabled=on_gpu):
            return self.head_loss(self.model(ids, mask=mask), places, targets, weights)

    def one_step(self, reservoir: Reservoir):
        """One batch, one update. Returns the loss, still on the device."""
        loss = self.loss(reservoir.batch(self.options.rows))
        loss.backward()
        factor = rate(self.progress, self.step)
        for optimizer, full_rate in zip(self.optimizers, (MATRIX_LR, OTHER_LR)):
            for group in optimizer.param_groups:
                group["lr"] = full_rate * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.tokens += ROW * self.options.rows
        return loss.detach()

    def train(self, encoder: Encoder):
        began = time.monotonic()
        reservoir = Reservoir(str(self.options.tokenizer), f"training {self.lives}", self.options.workers,
                              KEPT_ROWS if self.device == "cuda" else 20_000)
        self.log(f"start {self.lives}: {sum(p.numel() for p in self.model.parameters()) / 1e6:.2f} M parameters, "
                 f"{self.options.workers} workers, {self.device}, rows of {ROW}: {self.options.rows}")
        if self.options.compile:
            self.compile()
        reservoir.batch(self.options.rows)
        for _ in range(3):  # compiles; counts as steps of no time
            warm = self.one_step(reservoir)
        self.log(f"loss {float(warm):.4f}  ready after {time.monotonic() - began:.0f} s")
        logged_at = kept_at = clock = time.monotonic()
        total, count = torch.zeros((), device=self.device), 0
        while self.progress < 1:
            total += self.one_step(reservoir)
            count += 1
            if self.step % 8 == 0 and self.device == "cuda":
                torch.cuda.synchronize()  # so that the clock below tells the truth
            now = time.monotonic()
            self.seconds += now - clock
            clock = now
            if now - logged_at > LOG_SECONDS:
                speed = count * ROW * self.options.rows / (now - logged_at)
                self.log(f"loss {float(total) / count:.4f}  {speed / 1e3:.0f} k tokens/s  made {reservoir.filled * ROW / 1e6:.1f} M tokens, "
                         f"{100 * reservoir.reused / (reservoir.used + reservoir.reused):.0f} % of the rows used again")
                total, count, logged_at = torch.zeros((), device=self.device), 0, now
            if now - kept_at > CHECKPOINT_SECONDS:
                self.save()
                kept_at = time.monotonic()
        reservoir.close()
        self.save()
        if self.options.out:
            self.save_whole_weights()
        self.report(encoder)

    def save_whole_weights(self):
        """The weights in float32 in two files of like size, for going on from them (`--begin-with`)."""
        weights = {name: weight.detach().cpu().contiguous() for name, weight in sorted(self.model.state_dict().items())}
        halves, sizes = ({}, {}), [0, 0]
        for name, weight in sorted(weights.items(), key=lambda pair: -pair[1].numel()):
            smaller = sizes[0] > sizes[1]
            halves[smaller][name] = weight
            sizes[smaller] += weight.numel()
        for number, half in enumerate(halves):
            save_file(half, self.options.out / f"float32-{number + 1}.safetensors", metadata={"format": "pt"})

    def report(self, encoder: Encoder):
        """Every task on held-out values and wordings, and on held-out values in the training's wordings."""
        self.model = Qwen3(Shape()).to(self.device)  # a plain one: decoding has other shapes than what was compiled
        self.model.load_state_dict({name: w.to(torch.bfloat16).float() for name, w in torch.load(
            self.folder / "checkpoint.pt", weights_only=True, map_location=self.device)["model"].items()})
        self.model.eval()
        torch.set_float32_matmul_precision("highest")
        scores, missed = {}, {}
        for familiar in (False, True):
            name = "familiar" if familiar else "held out"
            scores[name] = {}
            for task in mixture.TASKS:
                scores[name][task], misses = evaluate(self.model, encoder, task, self.options.cases, familiar)
                missed[f"{name} {task}"] = [{"prompt": sample.messages[-1]["content"], "wanted": sample.completion(), "got": text}
                                            for sample, text in misses[:25]]
                if self.options.out:
                    (self.options.out / "scores.json").write_text(json.dumps(scores, indent=1))
                    (self.options.out / "misses.json").write_text(json.dumps(missed, indent=1, ensure_ascii=False))
            self.log(f"{name}: " + "  ".join(f"{task} {score:.1f}" for task, score in scores[name].items()))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--minutes", type=float, required=True)
    arguments.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments.add_argument("--workers", type=int, default=1, help="processes that make training data")
    arguments.add_argument("--rows", type=int, default=8, help=f"rows of {ROW} tokens in a batch")
    arguments.add_argument("--compile", action="store_true", help="compile the network first")
    arguments.add_argument("--cases", type=int, default=256, help="cases a task in the measurement at the end")
    arguments.add_argument("--out", type=pathlib.Path)
    arguments.add_argument("--begin-with", type=pathlib.Path, nargs="+", default=[], help="weights (safetensors) to begin a new run with")
    arguments.add_argument("--tokenizer", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "model" / "tokenizer.json")
    options = arguments.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.manual_seed(1)
    Run(options).train(Encoder(Tokenizer.from_file(str(options.tokenizer))))


if __name__ == "__main__":
    main()
