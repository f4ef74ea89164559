"""`batch`: the rows of a Ray Dataset, answered by actors that own an engine each."""

from __future__ import annotations

import json
from typing import Any, Mapping, Sequence

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, Dataset

from ._cluster import node_name, resources, warn_without_room
from ._columns import COLUMNS, columns_of, seed_of
from ._engine import BatchEngine, EngineError, EngineSpec

_TYPES = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
"""Arrow's types of those of `COLUMNS`."""

_OWN_FIELDS = {
    "messages": "messages come from the rows",
    "prompt": "prompts come from the rows",
    "seed": "it is an argument of its own",
    "structured_outputs": "it is an argument of its own",
    "model": "it is an argument of its own",
    "stream": "rows are whole",
    "n": "a row has one answer, so repeat the row with a column that differs",
}
"""Fields of a request that `body` may not have, and why."""


def batch(
    dataset: Dataset,
    *,
    model: str | None = None,
    structured_outputs: Mapping[str, Any] | None = None,
    body: Mapping[str, Any] | None = None,
    seed: int = 0,
    engines: int | tuple[int, int] = 1,
    num_cpus: int = 1,
    num_gpus: float = 0,
    engine_args: Sequence[str] = (),
    batch_size: int = 64,
    ray_remote_args: Mapping[str, Any] | None = None,
) -> Dataset:
    """A dataset with the rows of `dataset`, each answered: lazy, as Ray's own operations are.

    A row has a column `prompt` (a user's message, str) or `messages` (a list of `{"role", "content"}`). It comes
    back with all its columns and these: `answer`, `message`, `logprobs`, `finish_reason`,
    `structured_output_complete`, `prompt_tokens`, `completion_tokens`, `error`. `message` is the whole message as JSON
    where it is more than its text (calls of tools, reasoning), so that `answer` may be `None` without an error. A row
    that can't be served has an `error` and nothing else.

    - `model`: a path that all nodes have, a name on the Hugging Face Hub, or `None` for the built-in model.
    - `structured_outputs`: the constraint of all answers, `docs/constraints.md`.
    - `body`: further fields of each request, such as `{"max_tokens": 200, "temperature": 0}`.
    - `seed`: a row's noise is a function of it and of the row's columns, so a row has the same answer wherever and
      however often it runs, and two equal rows have equal answers. A column `seed` of the rows wins.
    - `engines`: how many actors, or fewest and most; each has `num_cpus` processors (its threads) and `num_gpus`.
    - `engine_args`: further flags of `formwork-batch`.
    - `batch_size`: rows that Ray hands over at a time. An engine has up to four such batches, of one or more of the
      dataset's blocks. A block is what is answered again where a node is lost.
    - `ray_remote_args`: for the actors, such as `{"resources": {"has_model": 0.01}}`.

    Where the cluster has no room for the fewest `engines`, that is logged at once; those that start answer everything.

    Raises `TypeError` or `ValueError`, which name the argument. The dataset's execution raises Ray's error with an
    `EngineError` in it where a node has no such model or executable, or where its engine refuses `body` or
    `structured_outputs`.
    """
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"dataset must be a ray.data.Dataset, got {type(dataset).__name__}: ray.data.from_items makes one of a list"
        )
    fields = dict(body or {})
    for name in fields:
        if name in _OWN_FIELDS:
            raise ValueError(f"body has the field {name!r}: {_OWN_FIELDS[name]}")
    if structured_outputs is not None:
        fields["structured_outputs"] = dict(structured_outputs)
    try:
        json.dumps(fields)
    except (TypeError, ValueError) as error:
        raise TypeError(f"body and structured_outputs must be JSON: {error}") from None
    least, most = (engines, engines) if isinstance(engines, int) else engines
    if not 1 <= least <= most:
        raise ValueError(f"engines is {engines!r}: give a number of actors, 1 at least, or the fewest and the most")
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size!r}: it must be 1 at least")
    spec = EngineSpec.of(model, engine_args, num_cpus)
    warn_without_room("batch", least, resources(num_cpus, num_gpus, ray_remote_args))
    return dataset.map_batches(
        FormworkEngine,
        fn_constructor_kwargs={"spec": spec, "fields": fields, "seed": int(seed)},
        batch_format="pyarrow",
        batch_size=batch_size,
        compute=ActorPoolStrategy(min_size=least, max_size=most),
        num_cpus=num_cpus,
        num_gpus=num_gpus or None,
        **dict(ray_remote_args or {}),
    )


class FormworkEngine:
    """An actor of Ray Data's: turns batches of rows into lines for its engine. Its name is what progress bars show."""

    def __init__(self, spec: EngineSpec, fields: dict[str, Any], seed: int) -> None:
        self._spec = spec
        self._fields = fields
        self._seed = seed
        self._engine = BatchEngine(spec)
        self._is_checked = False

    async def __call__(self, batch: pa.Table) -> pa.Table:
        for name in COLUMNS:
            if name in batch.column_names:
                raise EngineError(f"the dataset has a column {name!r}, which formwork.ray.batch writes: rename it")
        rows = batch.to_pylist()
        if not rows:
            return _with_answers(batch, [])
        if not self._is_checked:
            await self._check_fields()
            self._is_checked = True
        results = await self._engine.answer([(None, self._line(row)) for row in rows])
        answers = [columns_of(json.loads(result), seed_of(row, self._seed)) for row, result in zip(rows, results)]
        return _with_answers(batch, answers)

    async def _check_fields(self) -> None:
        """What all rows have is refused at once, by an answer to a greeting, and not once for each row."""
        line = self._line({"prompt": "Hello"})
        (result,) = await self._engine.answer([(None, line)])
        columns = columns_of(json.loads(result), 0)
        if columns["error"] is not None:
            raise EngineError(
                f"the engine of node {node_name()} ({self._spec.version or 'version unknown'}, model "
                f"{self._spec.model or 'built-in'}) refused the fields {', '.join(sorted(self._fields)) or '(none)'} "
                f"that {self._spec.asked_by} gave to formwork.ray.batch: {columns['error']}"
            )

    def _line(self, row: dict[str, Any]) -> bytes:
        """A row as a line of the batch format. A wrong row becomes a line that is refused as others are."""
        body = dict(self._fields)
        if row.get("messages") is not None:
            body["messages"] = row["messages"]
        else:
            body["messages"] = [{"role": "user", "content": row.get("prompt")}]
        body["seed"] = row["seed"] if row.get("seed") is not None else seed_of(row, self._seed)
        line = {"custom_id": "row", "method": "POST", "url": "/v1/chat/completions", "body": body}
        return json.dumps(line, default=str).encode()


def _with_answers(batch: pa.Table, answers: list[dict[str, Any]]) -> pa.Table:
    for name, kind in COLUMNS.items():
        batch = batch.append_column(name, pa.array([answer[name] for answer in answers], _TYPES[kind]))
    return batch
