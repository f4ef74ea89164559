"""Trains the built-in model on the processor.

usage: python train.py RUN_FOLDER --minutes 90 [--workers 3]

RUN_FOLDER holds everything the run writes: `checkpoint.pt` (the newest state), `before_decay.pt` (the
state when the learning rate began to fall) and `log.txt`. The same command again continues the run
where its newest checkpoint stands. The learning rate follows the minutes trained, not the steps, so the
run ends in time on any machine; pauses don't count.

Each worker is a process of one thread with its own batches; they meet once a step to add up gradients.
On a machine that does other work too, that is much faster than threads that meet at every operation.
"""
import argparse
import os
import pathlib
import signal
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from tokenizers import Tokenizer

import invented
import mixture
from encode import Encoder
from evaluate import evaluate
from model import Qwen3, Shape
from muon import build_optimizers
from source import Source

MATRIX_LR = 0.02
OTHER_LR = 3e-3
WARMUP_STEPS = 60
DECAY_SHARE = 0.45  # of the run's time, at its end
TOKENS_PER_BATCH = 1536  # of each worker, padding included
COPYING_TOKENS = 1_500_000  # plain copying fades out over the first so many tokens
LONGEST = 1024  # longer samples are left out
POOL = 1500  # samples that are sorted by length and cut into batches together
LOG_STEPS = 25
EVALUATION_MINUTES = 60
CHECKPOINT_MINUTES = 3


def batches(encoder: Encoder, seed: str, tokens_so_far):
    """Endless batches `(ids, targets, weights)` of samples of like length.

    Targets are those of the answer alone. A token's weight falls with the root of its answer's length, so
    that one-word answers count beside long ones.
    """
    source = Source(seed)
    invented.learn_pieces(encoder.tokenizer.get_vocab())
    while True:
        boost = 0.6 * max(0.0, 1 - tokens_so_far() / COPYING_TOKENS)
        samples = (mixture.draw(source, boost) for _ in range(POOL))
        pool = [(encoder.prompt(sample), encoder.completion(sample)) for sample in samples]
        pool = sorted((row for row in pool if len(row[0] + row[1]) <= LONGEST), key=lambda row: len(row[0] + row[1]))
        ready, rows = [], []
        for row in pool:
            if rows and len(row[0] + row[1]) * (len(rows) + 1) > TOKENS_PER_BATCH:
                ready.append(rows)
                rows = []
            rows.append(row)
        source.random.shuffle(ready)
        for rows in ready:
            yield pad(rows, encoder.end_of_text)


def pad(rows: list, padding: int):
    length = max(len(prompt + answer) for prompt, answer in rows) - 1
    ids = torch.full((len(rows), length), padding)
    targets = torch.full((len(rows), length), -1)
    weights = torch.zeros(len(rows), length)
    for row, (prompt, answer) in enumerate(rows):
        text = prompt + answer
        ids[row, :len(text) - 1] = torch.tensor(text[:-1])
        answer_at = slice(len(prompt) - 1, len(text) - 1)
        targets[row, answer_at] = torch.tensor(answer)
        weights[row, answer_at] = len(answer) ** -0.5
    return ids, targets, weights


def answer_loss(model, ids, targets, weights):
    """The weighted loss sum over the answers' tokens; the head is computed for these alone."""
    hidden = model(ids)
    chosen = targets >= 0
    losses = F.cross_entropy(model.logits(hidden[chosen]), targets[chosen], reduction="none")
    return (losses * weights[chosen]).sum()


def rate(progress: float, step: int) -> float:
    """The learning rate's factor: a short warm-up, a plateau, a straight fall to zero at the end."""
    return min(1.0, (step + 1) / WARMUP_STEPS, max(0.0, (1 - progress) / DECAY_SHARE))


def first_workers_number(number: float) -> float:
    """What the first worker passes here, at every worker: they must agree on the time."""
    message = torch.tensor([number], dtype=torch.float64)
    dist.broadcast(message, src=0)
    return message.item()


class Run:
    """A training run: the network, its optimizers, how far it is, and the folder it is kept in."""

    def __init__(self, folder: pathlib.Path, minutes: float):
        self.folder = folder
        self.minutes = minutes
        self.model = Qwen3(Shape())
        self.optimizers = build_optimizers(self.model, MATRIX_LR, OTHER_LR)
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.lives = 0  # how often the run was started; part of the data's seed, so that no data repeats
        folder.mkdir(parents=True, exist_ok=True)
        newest = folder / "checkpoint.pt"
        if newest.exists():
            self.restore(torch.load(newest, weights_only=True))
        self.lives += 1

    def restore(self, state: dict):
        self.model.load_state_dict(state["model"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(kept)
        for key in ("step", "tokens", "seconds", "lives"):
            setattr(self, key, state[key])

    def save(self, name: str = "checkpoint.pt"):
        """Writes beside the old state first, so that a stop at any moment leaves a whole one."""
        if dist.get_rank():
            return
        state = {key: getattr(self, key) for key in ("step", "tokens", "seconds", "lives")}
        state["model"] = self.model.state_dict()
        state["optimizers"] = [optimizer.state_dict() for optimizer in self.optimizers]
        torch.save(state, self.folder / (name + ".new"))
        os.replace(self.folder / (name + ".new"), self.folder / name)

    def log(self, text: str):
        if dist.get_rank():
            return
        line = f"{time.strftime('%H:%M:%S')} {self.seconds / 60:6.1f} min  step {self.step:5}  {self.tokens / 1e6:6.2f} M tokens  {text}"
        print(line, flush=True)
        with open(self.folder / "log.txt", "a") as file:
            file.write(line + "\n")

    @property
    def progress(self) -> float:
        return self.seconds / 60 / self.minutes

    def train(self, encoder: Encoder):
        """Steps until the time is up. Every worker runs this loop and keeps the same state; the first one reports and saves."""
        data = batches(encoder, f"training {self.lives} {dist.get_rank()}", lambda: self.tokens)
        self.log(f"start {self.lives}: {sum(p.numel() for p in self.model.parameters()) / 1e6:.2f} M parameters, "
                 f"{dist.get_world_size()} workers")
        losses, kept_at, evaluated_at, decaying = [], self.seconds, self.seconds, self.progress > 1 - DECAY_SHARE
        while self.progress < 1:
            losses.append(self.one_step(data))
            if self.step % LOG_STEPS == 0:
                self.log(f"loss {sum(losses) / len(losses):.4f}")
                losses = []
            if not decaying and self.progress > 1 - DECAY_SHARE:
                decaying = True
                self.save("before_decay.pt")
            if self.seconds - kept_at > 60 * CHECKPOINT_MINUTES:
                kept_at = self.seconds
                self.save()
            if self.seconds - evaluated_at > 60 * EVALUATION_MINUTES:
                evaluated_at = self.seconds
                self.report(encoder)
        self.save()
        self.report(encoder)

    def one_step(self, data) -> float:
        """One batch per worker, one update. Returns the loss over all workers' batches."""
        began = time.monotonic()
        ids, targets, weights = next(data)
        loss = answer_loss(self.model, ids, targets, weights)
        loss.backward()
        loss = self.share_gradients(loss.item(), float(weights.sum()), ids.numel())
        factor = rate(self.progress, self.step)
        for optimizer, full_rate in zip(self.optimizers, (MATRIX_LR, OTHER_LR)):
            for group in optimizer.param_groups:
                group["lr"] = full_rate * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.seconds += first_workers_number(time.monotonic() - began)
        return loss

    def share_gradients(self, loss: float, weight: float, tokens: int) -> float:
        """Makes every worker's gradients those of the loss over all their batches, which is returned; counts the tokens."""
        gradients = [p.grad for p in self.model.parameters()]
        message = torch.cat([g.flatten() for g in gradients] + [torch.tensor([loss, weight, float(tokens)])])
        dist.all_reduce(message)
        loss, weight, tokens = message[-3:].tolist()
        self.tokens += int(tokens)
        for gradient, part in zip(gradients, message[:-3].split([g.numel() for g in gradients])):
            gradient.copy_(part.view_as(gradient) / weight)
        return loss / weight

    def report(self, encoder: Encoder):
        """A quick look at every task on held-out values and wordings. The other workers wait in their next step."""
        if dist.get_rank():
            return
        self.model.eval()
        scores = {task: evaluate(self.model, encoder, task, 40)[0] for task in mixture.TASKS}
        self.model.train()
        self.log("  ".join(f"{task} {score:.0f}" for task, score in scores.items()))


def work(rank: int, options: argparse.Namespace):
    """One worker's life. A session of its own makes the system's scheduler count it by itself, beside other people's builds."""
    os.setsid()
    os.nice(5)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what a worker gets when the command is stopped; `nohup` would ignore it
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"file://{options.meeting_point}", rank=rank, world_size=options.workers)
    Run(options.folder, options.minutes).train(Encoder(Tokenizer.from_file(str(options.tokenizer))))
    dist.destroy_process_group()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--minutes", type=float, required=True)
    arguments.add_argument("--workers", type=int, default=3)
    arguments.add_argument("--tokenizer", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "model" / "tokenizer.json")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options.meeting_point = os.path.join(folder, "meeting-point")
        mp.spawn(work, (options,), nprocs=options.workers)


if __name__ == "__main__":
    main()
