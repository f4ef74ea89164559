#!/usr/bin/env python3
"""Two engine cores of one thread each beside one core of two threads: throughput, memory, and the pause when one is killed.

    python3 benchmarks/data_parallel.py                        # the built-in model
    python3 benchmarks/data_parallel.py --random-model FOLDER  # 0.5B of random weights, made in FOLDER if it isn't there

`--part throughput|memory|pause` runs one part. Needs Python 3.11 alone, Linux, two processors, and the executables
(`--bin`, target/release where absent). The machine should have nothing else to do.

Throughput: `formwork bench serve`, one core and two cores taking turns; the median over the rounds. Memory: what the
cores have together after that (Pss: a page that several have counts in parts). Pause: 256 streams on two cores, one of
which is killed when every stream has begun; a stream's pause is the longest time between two of its events from then
on, and less that of a run without a death. Every stream must end with the same text in both runs.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import struct
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TOKENIZER = REPOSITORY / "builtin-model/model"
# The shape of Qwen2.5-0.5B.
HIDDEN, INTER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 896, 4864, 24, 14, 2, 64, 151_936


def tensors():
    """Names and shapes of the random checkpoint's tensors."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (HIDDEN,)
        yield f"{prefix}.post_attention_layernorm.weight", (HIDDEN,)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            yield f"{prefix}.self_attn.{name}_proj.weight", (rows, HIDDEN)
            yield f"{prefix}.self_attn.{name}_proj.bias", (rows,)
        yield f"{prefix}.self_attn.o_proj.weight", (HIDDEN, q)
        yield f"{prefix}.mlp.gate_proj.weight", (INTER, HIDDEN)
        yield f"{prefix}.mlp.up_proj.weight", (INTER, HIDDEN)
        yield f"{prefix}.mlp.down_proj.weight", (HIDDEN, INTER)


def make_random_model(folder):
    """Writes a checkpoint of random bfloat16 weights with the built-in model's tokenizer, unless it is there."""
    target = folder / "model.safetensors"
    if target.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    header, at = {}, 0
    for name, shape in tensors():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    rng = random.Random(1)
    # Of 0.008 to 0.03, with either sign: the high byte of bfloat16 has the sign and most of the exponent.
    block = bytearray(rng.randbytes(8 << 20))
    block[1::2] = block[1::2].translate(bytes(0x3C | (byte & 0x80) for byte in range(256)))
    unfinished = folder / ".unfinished"
    with open(unfinished, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for name, shape in tensors():
            left = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            if name.endswith("norm.weight"):
                file.write(b"\x80\x3f" * (left // 2))
                continue
            while left > 0:
                start = 2 * rng.randrange(len(block) // 4)
                part = block[start:start + left]
                file.write(part)
                left -= len(part)
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": HIDDEN,
        "intermediate_size": INTER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCAB, "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0, "hidden_act": "silu", "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "eos_token_id": 4091,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((TOKENIZER / file).read_bytes())
    unfinished.rename(target)


class Server:
    """`formwork serve` with so many cores, which share two threads."""

    def __init__(self, arguments, size):
        self.bin, self.port = arguments.bin, arguments.port
        self.log = tempfile.TemporaryFile("w+")
        command = [self.bin / "formwork", "serve", "--port", str(self.port), "--threads", "2", "--data-parallel-size",
                   str(size), "--disable-log-stats",
                   # Each core's: all have the same together.
                   "--kv-cache-memory-bytes", str((256 << 20) // size)]
        if arguments.random_model:
            command += ["--model", arguments.random_model, "--served-model-name", "random"]
        if arguments.quantization:
            command += ["--quantization", arguments.quantization]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def __enter__(self):
        for _ in range(6000):
            if self.process.poll() is not None:
                self.log.seek(0)
                raise SystemExit(f"the server ended:\n{self.log.read()}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=10).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise SystemExit("the server was never ready")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def cores(self):
        """Process ids of the engine cores."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sorted(int(child) for task in tasks for child in (task / "children").read_text().split())

    def memory(self):
        """Bytes that the cores have together."""
        total = 0
        for core in self.cores():
            lines = Path(f"/proc/{core}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
        return total

    def throughput(self, prompts, output_len):
        """Output tokens per second with 32 requests at a time."""
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "result.json"
            command = [self.bin / "formwork", "bench", "serve", "--base-url", f"http://127.0.0.1:{self.port}",
                       "--backend", "openai-chat", "--max-concurrency", "32", "--num-prompts", str(prompts),
                       "--num-warmups", "32", "--random-output-len", str(output_len), "--ignore-eos",
                       "--result-json", result]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            return json.loads(result.read_text())["output_throughput"]


async def stream(port, number, tokens, begun):
    """The text of an endless stream, and when each of its events came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"prompt": f"Number {number}: ", "max_tokens": tokens, "ignore_eos": True, "stream": True,
                       "temperature": 0.9, "seed": number})
    writer.write(f"POST /v1/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n"
                 f"Content-Type: application/json\r\n\r\n{body}".encode())
    text, times = [], []
    async for line in reader:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise SystemExit(f"stream {number}: {event}")
        times.append(time.monotonic())
        text += [choice["text"] for choice in event["choices"]]
        if len(times) == 1:
            begun.append(number)
    writer.close()
    return "".join(text), times


async def streams(server, count, tokens, kill):
    """The texts of many streams, and each one's longest time between two events since the kill."""
    begun = []
    running = [asyncio.create_task(stream(server.port, number, tokens, begun)) for number in range(count)]
    while len(begun) < count:
        await asyncio.sleep(0.002)
    killed = time.monotonic()
    if kill:
        os.kill(server.cores()[0], signal.SIGKILL)
    ended = await asyncio.gather(*running)
    pauses = []
    for _, times in ended:
        since = [killed] + [at for at in times if at > killed]
        pauses.append(max((after - before for before, after in zip(since, since[1:])), default=0.0))
    return [text for text, _ in ended], pauses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=REPOSITORY / "target/release")
    parser.add_argument("--random-model", type=Path)
    parser.add_argument("--quantization", help="as of formwork serve")
    parser.add_argument("--part", choices=["throughput", "memory", "pause"])
    parser.add_argument("--port", type=int, default=8125)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num-prompts", type=int, default=256)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--stream-len", type=int, default=200)
    arguments = parser.parse_args()
    if arguments.random_model:
        make_random_model(arguments.random_model)
    wants = lambda part: arguments.part in (None, part)

    if wants("throughput") or wants("memory"):
        rates, memory = {1: [], 2: []}, {}
        for turn in range(arguments.rounds if wants("throughput") else 1):
            for size in (1, 2) if turn % 2 == 0 else (2, 1):
                with Server(arguments, size) as server:
                    rates[size].append(server.throughput(arguments.num_prompts, arguments.output_len))
                    memory[size] = server.memory()
        one, two = (statistics.median(rates[size]) for size in (1, 2))
        if wants("throughput"):
            print(f"throughput  one core {one:8.0f} tokens/s, two {two:8.0f}: {two / one:.3f}")
        print(f"memory      one core {memory[1] >> 20:8} MiB, two {memory[2] >> 20:8}: {memory[2] / memory[1]:.3f}")

    if wants("pause"):
        for turn in range(arguments.rounds):
            with Server(arguments, 2) as server:
                run = lambda kill: asyncio.run(streams(server, arguments.streams, arguments.stream_len, kill))
                run(False)
                expected, usual = run(False)
                texts, pauses = run(True)
                if texts != expected:
                    raise SystemExit("texts differ from those of a run without a death")
                print(f"pause       {max(pauses):.3f} s at most, {statistics.median(pauses):.3f} in the middle; without a "
                      f"death {max(usual):.3f} and {statistics.median(usual):.3f}")


if __name__ == "__main__":
    main()
