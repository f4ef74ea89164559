"""Training rows: worker processes draw samples, pack them into rows of one length, and a reservoir hands out batches.

A row holds several samples, each of which sees itself alone (`attention_mask`). Where the workers are slower than the
network, rows are used again, the oldest quarter aside.
"""
import os
import queue
import random
import threading
import time

import numpy as np
import torch
import torch.multiprocessing as mp
from tokenizers import Tokenizer

import invented
import mixture
from encode import Encoder, prompt_text
from source import Source

ROW = 768  # tokens of a row; longer samples are left out
POOL = 400  # samples that are packed together
COPYING_SAMPLES = 4000  # each worker begins with much plain copying, which fades out over so many samples


def encoded(encoder: Encoder, samples: list) -> list:
    """`(prompt ids, answer ids)` of each sample."""
    prompts = encoder.tokenizer.encode_batch([prompt_text(sample) for sample in samples], add_special_tokens=False)
    return [(prompt.ids, encoder.completion(sample)) for prompt, sample in zip(prompts, samples)]


def packed(rows: list, padding: int):
    """Samples packed into `(ids, documents, weights)`, each `[rows, ROW + 1]`, the longest first into the first row with room.

    `documents` numbers the samples of a row from 1 on; 0 is padding. A token's weight is zero in prompts and falls with
    the root of its answer's length, so that one-word answers count beside long ones.
    """
    room, contents = [], []
    for prompt, answer in sorted(rows, key=lambda row: -len(row[0]) - len(row[1])):
        length = len(prompt) + len(answer)
        if length > ROW:
            continue
        at = next((i for i, free in enumerate(room) if free >= length), None)
        if at is None:
            room.append(ROW + 1)
            contents.append([])
            at = len(room) - 1
        room[at] -= length
        contents[at].append((prompt, answer))
    ids = np.full((len(contents), ROW + 1), padding, dtype=np.uint16)
    documents = np.zeros((len(contents), ROW + 1), dtype=np.uint8)
    weights = np.zeros((len(contents), ROW + 1), dtype=np.float16)
    for row, samples in enumerate(contents):
        start = 0
        random.shuffle(samples)
        for number, (prompt, answer) in enumerate(samples):
            middle, end = start + len(prompt), start + len(prompt) + len(answer)
            ids[row, start:end] = prompt + answer
            documents[row, start:end] = number + 1
            weights[row, middle:end] = len(answer) ** -0.5
            start = end
    return ids, documents, weights


def blocks(tokenizer_path: str, seed: str):
    """Endless blocks of packed rows."""
    encoder = Encoder(Tokenizer.from_file(tokenizer_path))
    invented.learn_pieces(encoder.tokenizer.get_vocab())
    source, drawn = Source(seed), 0
    while True:
        boost = 0.6 * max(0.0, 1 - drawn / COPYING_SAMPLES)
        samples = [mixture.draw(source, boost) for _ in range(POOL)]
        drawn += POOL
        yield packed(encoded(encoder, samples), encoder.end_of_text)


def work(tokenizer_path: str, seed: str, out):
    """A worker's life: blocks into the queue, as long as the parent lives."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.nice(5)
    torch.set_num_threads(1)
    parent = os.getppid()
    for block in blocks(tokenizer_path, seed):
        while True:
            if os.getppid() != parent:
                return
            try:
                out.put(block, timeout=5)
                break
            except queue.Full:
                continue


class Reservoir:
    """Rows from the workers, kept for use again; `batch` never waits once there are enough for one batch."""

    def __init__(self, tokenizer_path: str, seed: str, workers: int, capacity_rows: int):
        context = mp.get_context("spawn")
        self.queue = context.Queue(maxsize=4 * workers)
        self.workers = [context.Process(target=work, args=(tokenizer_path, f"{seed} {i}", self.queue), daemon=True)
                        for i in range(workers)]
        for worker in self.workers:
            worker.start()
        self.ids = np.zeros((capacity_rows, ROW + 1), dtype=np.uint16)
        self.documents = np.zeros((capacity_rows, ROW + 1), dtype=np.uint8)
        self.weights = np.zeros((capacity_rows, ROW + 1), dtype=np.float16)
        self.filled = self.used = self.reused = 0  # rows that arrived, were handed out first, were handed out again
        self.random = np.random.default_rng(1)
        self.stopped = False
        self.thread = threading.Thread(target=self.collect, daemon=True)
        self.thread.start()

    def collect(self):
        """Moves blocks from the queue into the arrays; a full array is written anew from its start."""
        while not self.stopped:
            if self.filled - self.used > len(self.ids) // 2:  # the network is slower: let the workers wait
                time.sleep(0.05)
                continue
            try:
                ids, documents, weights = self.queue.get(timeout=1)
            except queue.Empty:
                continue
            at = np.arange(self.filled, self.filled + len(ids)) % len(self.ids)
            self.ids[at], self.documents[at], self.weights[at] = ids, documents, weights
            self.filled += len(ids)

    def batch(self, rows: int):
        while self.filled < max(rows, 64):
            if not any(worker.is_alive() for worker in self.workers):
                raise RuntimeError("the workers have died")
            time.sleep(0.02)
        filled = self.filled
        self.used = max(self.used, filled - len(self.ids))
        fresh = min(rows, filled - self.used)
        at = np.arange(self.used, self.used + fresh)
        self.used += fresh
        if fresh < rows:
            oldest = max(self.used // 4, filled - len(self.ids))
            self.reused += rows - fresh
            at = np.concatenate((at, self.random.integers(oldest, max(oldest + 1, filled), rows - fresh)))
        at = at % len(self.ids)
        return self.ids[at], self.documents[at], self.weights[at]

    def close(self):
        self.stopped = True
        for worker in self.workers:
            worker.terminate()


def tensors(batch, answers: int, device: str):
    """The batch on the device: `ids`, `documents`, and for `answers` tokens of the answers (a fixed number) place, target and weight.

    The head is computed for these alone. Where a batch has fewer, the rest has weight zero; more are left out.
    """
    ids, documents, weights = batch
    places = np.flatnonzero(weights[:, 1:])
    targets, chosen = ids[:, 1:].reshape(-1)[places], weights[:, 1:].reshape(-1)[places]
    kept = min(len(places), answers)
    padded = [np.zeros(answers, dtype=kind) for kind in (np.int64, np.int64, np.float32)]
    for to, values in zip(padded, (places, targets, chosen)):
        to[:kept] = values[:kept]
    arrays = [ids[:, :-1].astype(np.int32), documents[:, :-1], *padded]
    out = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    if device == "cuda":
        out = [array.pin_memory().to(device, non_blocking=True) for array in out]
    return out


def attention_mask(documents, dtype):
    """What to add to the scores, `[rows, 1, length, length]`: zero where a token sees another of its own sample, before it."""
    length = documents.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=documents.device).tril()
    seen = (documents[:, :, None] == documents[:, None, :]) & causal
    return torch.zeros((), dtype=dtype, device=documents.device).masked_fill(~seen, float("-inf"))[:, None]
