"""Follows a server's KV events as a router does, with pyzmq and msgspec: kv_events_client.py URL TEST ARGUMENT...

The classes are those of vLLM's `vllm/distributed/kv_events.py` (0.29), field by field.
"""

import concurrent.futures
import hashlib
import http.client
import json
import os
import random
import signal
import socket
import sys
import time

import cbor2
import msgspec
import zmq

BLOCK_SIZE = 16
PATIENCE = 120
STRUCT = {"omit_defaults": True, "gc": False, "forbid_unknown_fields": True}


class BlockStored(msgspec.Struct, tag=True, **STRUCT):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(msgspec.Struct, tag=True, **STRUCT):
    block_hashes: list[int]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True, **STRUCT):
    pass


class KVEventBatch(msgspec.Struct, array_like=True, **STRUCT):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class Server:
    """Requests of token ids to the server at a base URL."""

    def __init__(self, url):
        self.host = url.removeprefix("http://").removesuffix("/v1")
        self.connection = http.client.HTTPConnection(self.host, timeout=PATIENCE)

    def complete(self, prompt, max_tokens=1, **fields):
        """The number of tokens from the cache, and the tokens of the answer."""
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        body |= {"return_token_ids": True} | fields
        headers = {"Content-Type": "application/json"}
        self.connection.request("POST", "/v1/completions", json.dumps(body), headers)
        response = self.connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return cached, answer["choices"][0]["token_ids"]

    def metric(self, name):
        self.connection.request("GET", "/metrics")
        lines = self.connection.getresponse().read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


def replayed(endpoint, first):
    """What can be asked for again from a number on."""
    dealer = zmq.Context.instance().socket(zmq.DEALER)
    dealer.rcvtimeo = PATIENCE * 1000
    dealer.connect(endpoint)
    # Not understood, and no reason to end the connection.
    dealer.send_multipart([b"", b"x"])
    dealer.send_multipart([b"", first.to_bytes(8, "big")])
    batches = []
    while True:
        empty, number, payload = dealer.recv_multipart()
        assert empty == b""
        if number == (-1).to_bytes(8, "big", signed=True):
            assert payload == b""
            dealer.close(linger=0)
            return batches
        batches.append((int.from_bytes(number, "big"), payload))


class Subscriber:
    """Follows the events of one core, and knows which blocks it has."""

    def __init__(self, events, replay, topic=b"kv@test@", rank=0):
        self.replay, self.topic, self.rank = replay, topic, rank
        self.sub = zmq.Context.instance().socket(zmq.SUB)
        self.sub.rcvtimeo = PATIENCE * 1000
        self.sub.subscribe(topic[:7])
        self.sub.connect(events)
        self.index, self.heard, self.next = {}, [], 0

    def wait_until_heard(self, server):
        """A subscriber that comes late misses what was before: asks until events come."""
        while not self.sub.poll(200):
            server.complete([random.randrange(500) for _ in range(40)])
        number, payload = self.receive()
        missed = [batch for batch in replayed(self.replay, 0) if batch[0] < number]
        assert [batch[0] for batch in missed] == list(range(number))
        for batch in [*missed, (number, payload)]:
            self.take(*batch)

    def receive(self):
        topic, number, payload = self.sub.recv_multipart()
        assert topic == self.topic and len(number) == 8
        return int.from_bytes(number, "big"), payload

    def take(self, number, payload):
        assert number == self.next, (number, self.next)
        self.next += 1
        batch = msgspec.msgpack.decode(payload, type=KVEventBatch)
        # Byte for byte what vLLM's classes make of it.
        assert msgspec.msgpack.encode(batch) == payload
        assert abs(batch.ts - time.time()) < 3600 and batch.data_parallel_rank == self.rank
        for event in batch.events:
            self.heard.append(event)
            apply(self.index, event)

    def catch_up(self):
        """Hears everything up to now: what can be replayed is what is published, byte for byte."""
        self.heard = []
        for batch in replayed(self.replay, self.next):
            assert self.receive() == batch
            self.take(*batch)
        return self.heard


def apply(index, event):
    match event:
        case BlockStored():
            assert event.medium == "GPU" and event.block_size == BLOCK_SIZE
            assert event.group_idx == 0 and event.kv_cache_spec_kind == "full_attention"
            assert len(event.extra_keys) == len(event.block_hashes)
            assert len(event.token_ids) == BLOCK_SIZE * len(event.block_hashes)
            for i, name in enumerate(event.block_hashes):
                assert name not in index, "stored twice"
                index[name] = event.token_ids[i * BLOCK_SIZE : (i + 1) * BLOCK_SIZE]
        case BlockRemoved():
            for name in event.block_hashes:
                del index[name]
        case AllBlocksCleared():
            index.clear()


def sha256_cbor(value):
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def names(tokens, salt=None):
    """vLLM's names of a prompt's full blocks, by sha256_cbor and PYTHONHASHSEED=7."""
    parent, found = sha256_cbor("7"), []
    for first in range(0, len(tokens) - BLOCK_SIZE + 1, BLOCK_SIZE):
        block = tuple(tokens[first : first + BLOCK_SIZE])
        parent = sha256_cbor((parent, block, (salt,) if salt and first == 0 else None))
        found.append(int.from_bytes(parent, "big") & ((1 << 64) - 1))
    return found


def predicted(index, prompt, salt=None):
    """Tokens that a prompt finds: its longest prefix of known blocks, all but the last token at most."""
    found = 0
    for name in names(prompt, salt)[: (len(prompt) - 1) // BLOCK_SIZE]:
        if name not in index:
            break
        found += BLOCK_SIZE
    return found


def a_prompt_its_reuse_and_its_eviction(server, subscriber):
    subscriber.catch_up()
    prompt = [300 + i for i in range(50)]
    assert server.complete(prompt)[0] == 0
    stored = subscriber.catch_up()[-1]
    assert stored.block_hashes == names(prompt) and stored.parent_block_hash is None
    assert stored.token_ids == prompt[:48] and stored.extra_keys == [None] * 3
    # The same again stores nothing, and a longer one what is new.
    assert server.complete(prompt)[0] == 48
    assert subscriber.catch_up() == []
    longer = prompt + [7] * 20
    assert server.complete(longer)[0] == 48
    [stored] = subscriber.catch_up()
    assert stored.block_hashes == names(longer)[3:]
    assert stored.parent_block_hash == names(prompt)[2]
    # Another's: other names, and what they depend on.
    assert server.complete(prompt, cache_salt="team")[0] == 0
    salted = [event for event in subscriber.catch_up() if isinstance(event, BlockStored)]
    assert [event.extra_keys for event in salted] == [[("team",), None, None]]
    assert salted[0].block_hashes == names(prompt, "team")
    removed = set()
    while not removed.issuperset(names(longer)):
        server.complete([random.randrange(500) for _ in range(200)])
        for event in subscriber.catch_up():
            if isinstance(event, BlockRemoved):
                removed.update(event.block_hashes)
    assert server.complete(prompt)[0] == 0
    subscriber.catch_up()


def a_thousand_requests(server, subscriber):
    """Conversations that branch, in a cache that is too small for all of them."""
    rng = random.Random(29)
    prompts, hits, num_requests = [[]], 0, 0
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        while num_requests < 1000:
            beginning = rng.choice(prompts[-40:])
            prompt = beginning[: rng.randrange(len(beginning) + 1)]
            prompt = prompt + [rng.randrange(500) for _ in range(rng.randrange(1, 90))]
            prompt = prompt[:300]
            salt = rng.choice([None, None, None, "a"])
            fields = {"cache_salt": salt} if salt else {}
            expected = predicted(subscriber.index, prompt, salt)
            cached, answer = server.complete(prompt, rng.randrange(1, 24), **fields)
            assert cached == expected, (num_requests, cached, expected)
            hits += cached > 0
            num_requests += 1
            prompts.append(prompt + answer)
            if num_requests % 50 == 0:
                # Several at once: nobody predicts those, but what they leave.
                url = server.host
                burst = [rng.choice(prompts[-40:])[:300] or [1] for _ in range(6)]
                burst += burst[:3]
                list(pool.map(lambda p: Server(url).complete(p, 8), burst))
            subscriber.catch_up()
    assert hits > 300, hits
    # Who comes at the end and asks for all of it knows the same.
    index = {}
    for _, payload in replayed(subscriber.replay, 0):
        for event in msgspec.msgpack.decode(payload, type=KVEventBatch).events:
            apply(index, event)
    assert index == subscriber.index and len(index) > 10


def a_core_that_dies(server, subscriber, core):
    prompt = [5 + i for i in range(70)]
    server.complete(prompt)
    subscriber.catch_up()
    assert subscriber.index
    os.kill(core, signal.SIGKILL)
    # The next core answers, and numbers go on.
    assert server.complete(prompt)[0] == 0
    heard = subscriber.catch_up()
    assert AllBlocksCleared() in heard, heard
    assert sorted(subscriber.index) == sorted(names(prompt))
    assert server.complete(prompt)[0] == 64
    assert subscriber.catch_up() == []


def subscribers_that_never_read(server, host, port):
    """Peers that subscribe, or claim the longest of frames, or say nothing: nobody waits for them."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x03SUB"
    sockets = []
    for says in [b"\x00\x01\x01", b"\x02" + b"\xff" * 8, None]:
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect((host, port))
        if says is not None:
            peer.sendall(greeting + bytes([4, len(ready)]) + ready + says)
        sockets.append(peer)
    deadline = time.monotonic() + PATIENCE
    while server.metric("formwork:kv_event_batches_dropped_total") < 5:
        assert time.monotonic() < deadline, "nothing is dropped"
        server.complete([random.randrange(500) for _ in range(1000)])
    # One that reads is told of what is dropped by the numbers.
    sockets[0].settimeout(PATIENCE)
    received = b""
    while len(received) < 1 << 14:
        received += sockets[0].recv(1 << 16)
    assert received[:10] == greeting[:10]


def two_cores(url, events, replay):
    """Each core has the next port, numbers of its own, and says which one it is."""
    rng = random.Random(3)
    subscribers = [
        Subscriber(f"tcp://127.0.0.1:{events + rank}", f"tcp://127.0.0.1:{replay + rank}", b"", rank)
        for rank in range(2)
    ]
    deadline = time.monotonic() + PATIENCE
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        while not all(subscriber.sub.poll(0) for subscriber in subscribers):
            assert time.monotonic() < deadline, "a core publishes nothing"
            prompts = [[rng.randrange(500) for _ in range(100)] for _ in range(8)]
            list(pool.map(lambda prompt: Server(url).complete(prompt, 8), prompts))
    for subscriber in subscribers:
        for batch in replayed(subscriber.replay, 0):
            subscriber.take(*batch)
        assert subscriber.index
    assert not set(subscribers[0].index) & set(subscribers[1].index)


def main():
    url, test, *arguments = sys.argv[1:]
    server = Server(url)
    if test == "never-reads":
        return subscribers_that_never_read(server, "127.0.0.1", int(arguments[0]))
    if test == "two-cores":
        return two_cores(url, *map(int, arguments))
    subscriber = Subscriber(*arguments[:2])
    subscriber.wait_until_heard(server)
    if test == "index":
        a_prompt_its_reuse_and_its_eviction(server, subscriber)
        a_thousand_requests(server, subscriber)
    elif test == "core-dies":
        a_core_that_dies(server, subscriber, int(arguments[2]))
    else:
        raise SystemExit(f"no test {test}")


main()
