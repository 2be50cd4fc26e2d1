"""Aggregates as users write them."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc


class WeightedSum:
    """Changes its accumulator in place."""

    def create_accumulator(self) -> list[int]:
        return [0]

    def accumulate(self, accumulator: list[int], value: int | None, weight: int | None) -> None:
        accumulator[0] += (value or 0) * (weight or 0)

    def retract(self, accumulator: list[int], value: int | None, weight: int | None) -> None:
        accumulator[0] -= (value or 0) * (weight or 0)

    def get_value(self, accumulator: list[int]) -> int:
        return accumulator[0]


class Concatenation:
    """Cannot take rows back, and gives new accumulators."""

    def create_accumulator(self) -> str:
        return ""

    def accumulate(self, accumulator: str, value: str | None) -> str:
        return accumulator + (value or "-")

    def get_value(self, accumulator: str) -> str:
        return accumulator


class ArrowSum:
    """Gets whole columns."""

    def create_accumulator(self) -> int:
        return 0

    def accumulate(self, accumulator: int, values: pa.Array) -> int:
        return accumulator + (pc.sum(values).as_py() or 0)

    def retract(self, accumulator: int, values: pa.Array) -> int:
        return accumulator - (pc.sum(values).as_py() or 0)

    def get_value(self, accumulator: int) -> int:
        return accumulator


class Rows:
    """Without arguments."""

    def create_accumulator(self) -> int:
        return 0

    def accumulate(self, accumulator: int) -> int:
        return accumulator + 1

    def get_value(self, accumulator: int) -> int:
        return accumulator


class Failing(Concatenation):
    """Fails, or gives what is no STRING."""

    def accumulate(self, accumulator: str, value: str | None) -> Any:
        if value == "fail":
            raise ValueError("no such value")
        return 1


class Held:
    """No plain value."""


class Holder:
    """Keeps what cannot be stored."""

    def create_accumulator(self) -> Held:
        return Held()

    def accumulate(self, accumulator: Held) -> None:
        """Remembers nothing."""

    def get_value(self, accumulator: Held) -> int:
        return 0


class ByNumPy:
    """Gets NumPy arrays, which hold no NULL."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def accumulate(self, accumulator: list[int], values: npt.NDArray[np.int64]) -> None:
        accumulator[0] += int(values.sum())
        accumulator[1] += len(values)

    def get_value(self, accumulator: list[int]) -> int:
        return accumulator[0] * 100 + accumulator[1]


class ByPandas(ByNumPy):
    """Gets Series with NULLs."""

    def accumulate(self, accumulator: list[int], values: Annotated[pd.Series, "BIGINT"]) -> None:  # type: ignore[override]
        known = values.dropna()
        ByNumPy.accumulate(self, accumulator, known.to_numpy())


class ByPolars(ByNumPy):
    """Gets Series with NULLs."""

    def accumulate(self, accumulator: list[int], values: Annotated[pl.Series, "BIGINT"]) -> None:  # type: ignore[override]
        ByNumPy.accumulate(self, accumulator, values.drop_nulls().to_numpy())
