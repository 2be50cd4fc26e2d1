"""Table functions as users write them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
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


class Word(NamedTuple):
    """A row of `named_words`, by other names in the output if these are taken."""

    given: str
    size: int


@dataclass
class Sized:
    """The same with the columns in another order."""

    size: int
    given: str


def named_words(text: str | None) -> Iterator[Word | Sized | dict[str, object]]:
    """The words of a text in all forms that rows may have."""
    for number, word in enumerate((text or "").split()):
        row = Word(word, len(word))
        yield (row, Sized(row.size, row.given), row._asdict())[number % 3]


named_words.__annotations__["return"] = Iterator[Word]


@flowrun.udtf(result="n BIGINT")
def by_numpy(counts: npt.NDArray[np.int32]) -> tuple[pa.RecordBatch, np.ndarray]:
    """0 up to each count; NULL is not among them."""
    parents = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
    return pa.record_batch({"n": pa.array(places, pa.int64())}), parents


@flowrun.udtf(result="n BIGINT")
def by_pandas(counts: pd.Series) -> tuple[pd.DataFrame, list[int]]:
    """The same as a DataFrame of pandas."""
    parents = [i for i, n in enumerate(counts) if n is not pd.NA for _ in range(n)]
    places = [k for n in counts if n is not pd.NA for k in range(n)]
    return pd.DataFrame({"n": pd.Series(places, dtype="int64")}), parents


@flowrun.udtf(result="n BIGINT")
def by_polars(counts: pl.Series) -> tuple[pl.DataFrame, list[int]]:
    """The same as a DataFrame of polars."""
    parents = [i for i, n in enumerate(counts) if n is not None for _ in range(n)]
    places = [k for n in counts if n is not None for k in range(n)]
    return pl.DataFrame({"n": pl.Series(places, dtype=pl.Int64)}), parents
