"""Table functions as users write them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import flowrun


@flowrun.udtf(result="word STRING, size INT")
def words(text: str | None) -> Iterator[tuple[str, int]] | None:
    """The words of a text."""
    return None if text is None else ((w, len(w)) for w in text.split())


@flowrun.udtf(result="n BIGINT")
def numbers(count: int) -> list[int]:
    """0 up to a count: lone values."""
    return list(range(count))


@flowrun.udtf(result="a INT, b INT")
def wrong(kind: str) -> object:
    """What does not fit."""
    if kind == "raise":
        raise ValueError("no")
    return {"number": 3, "short": [(1,)], "text": [("x", "y")]}[kind]


@flowrun.udtf(result="n BIGINT", vectorised=True)
def repeated(counts: pa.Array) -> tuple[pa.RecordBatch, np.ndarray]:
    """0 up to each count, a whole batch a call."""
    sizes = pc.fill_null(counts, 0).to_numpy()
    parents = np.repeat(np.arange(len(sizes)), sizes)
    places = np.arange(len(parents)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return pa.record_batch({"n": pa.array(places, pa.int64())}), parents


class Doubler:
    """A class: one instance a subtask."""

    def __init__(self) -> None:
        self.times = 2

    def eval(self, value: int) -> Iterator[int]:
        """The value, twice."""
        for _ in range(self.times):
            yield value
