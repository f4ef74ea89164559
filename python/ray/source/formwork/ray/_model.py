"""Tells two models apart that have one name on two machines."""

from __future__ import annotations

import hashlib
import os

_WHOLE_FILE = 1 << 20
"""Bytes of a file up to which all of it counts for a fingerprint. Larger files are weights, and are sampled."""

_SAMPLE = 64 << 10
"""Bytes of a sample."""

_SAMPLES = 128
"""Samples of a model (8 MiB), shared out among its large files: few enough for a network's file system."""

_MODEL_FILES = (".safetensors", ".gguf", ".json", ".jinja", ".txt", ".model")
"""Ends of the names of a model's own files. An engine may keep its weight cache beside them, on some nodes only."""

_HOSTS = ("https://huggingface.co/", "http://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/", "hf://")
"""What may stand before a name on the Hub."""


def model_fingerprint(path: str) -> str | None:
    """A hash of the model at `path`: names and sizes of its files, all of the small ones, samples of the weights.

    `None` where nothing is at `path`. Samples are spread evenly from a file's first byte to its last, so other weights
    of the same size differ in them; a change of a few bytes in a large file may not. Reads at most 1 MiB of each small
    file and about 8 MiB of the large ones.
    """
    if os.path.isfile(path):
        files = [path]
    elif os.path.isdir(path):
        files = [entry.path for entry in os.scandir(path) if entry.is_file() and entry.name.endswith(_MODEL_FILES)]
    else:
        return None
    sizes = {file: os.path.getsize(file) for file in sorted(files)}
    num_large = sum(size > _WHOLE_FILE for size in sizes.values())
    samples = max(3, _SAMPLES // max(1, num_large))
    digest = hashlib.sha256()
    for file, size in sizes.items():
        digest.update(f"{os.path.basename(file)}\0{size}\0".encode())
        with open(file, "rb") as stream:
            if size <= max(_WHOLE_FILE, samples * _SAMPLE):
                digest.update(stream.read())
                continue
            for sample in range(samples):
                stream.seek((size - _SAMPLE) * sample // (samples - 1))
                digest.update(stream.read(_SAMPLE))
    return digest.hexdigest()[:16]


def hub_revision(model: str) -> str | None:
    """The commit that a name on the Hugging Face Hub stands for in this machine's cache. `None` where it has none.

    Branches move, so two nodes that downloaded at different times may have different ones.
    """
    for host in _HOSTS:
        model = model.removeprefix(host)
    repository, _, revision = model.partition(":")[0].partition("@")
    folder = os.path.join(_hub_cache(), "models--" + repository.replace("/", "--"))
    try:
        with open(os.path.join(folder, "refs", revision or "main"), encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, ValueError):
        # A commit by itself has no reference.
        return revision if revision and os.path.isdir(os.path.join(folder, "snapshots", revision)) else None


def _hub_cache() -> str:
    """The Hub's cache, by the variables that engines read."""

    def variable(name: str) -> str | None:
        value = os.environ.get(name, "").strip()
        return os.path.expanduser(os.path.expandvars(value)) if value else None

    cache = variable("HF_HUB_CACHE") or variable("HUGGINGFACE_HUB_CACHE")
    home = variable("HF_HOME")
    if home is None:
        home = os.path.join(variable("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface")
    return cache or os.path.join(home, "hub")
