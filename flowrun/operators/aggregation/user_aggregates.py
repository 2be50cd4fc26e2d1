# ruff: noqa: ARG001 - kernels share one signature
"""Users' Python aggregates: as functions of the collected values of a group, and as accumulators that rows are folded into.

An accumulator is kept as JSON text (`accumulator_codec`): state that never changes in place, and runs no code when it is read. Rows of a
group are folded in order of arrival.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.aggregate import AggregateKernel, UserAggregate, WithArguments
from flowrun.core.arrays import Bools, Integers
from flowrun.core.types import BOOLEAN, DataType, TypeRoot, row
from flowrun.errors import DataError, StateError
from flowrun.operators.aggregation.accumulator_codec import AccumulatorCodec, AccumulatorError
from flowrun.operators.function_loading import describe, where
from flowrun.operators.user_functions import load_aggregate

_loaded = threading.local()


def user_kernel(user: UserAggregate) -> AggregateKernel:
    """The kernel of a user's aggregate."""
    argument = row(*((f"f{i}", t) for i, t in enumerate(user.arguments))) if user.arguments else BOOLEAN
    return AggregateKernel(
        user.name,
        argument,
        user.result,
        collect=WithArguments(_collect, (user,)),
        order_sensitive=True,
        keeps_nulls=True,
        user=user,
    )


def _collect(user: UserAggregate, values: pa.ListArray, result: DataType) -> pa.Array:
    """The aggregate of each group's values."""
    lengths = pc.list_value_length(values).fill_null(0).to_numpy()
    groups = np.repeat(np.arange(len(values)), lengths)
    folding = UserFolding(user)
    return folding.results(folding.folded([None] * len(values), groups, values.flatten(), None))


class UserFolding:
    """Folds rows into stored accumulators. The aggregate is loaded once a thread: a subtask has one."""

    def __init__(self, user: UserAggregate) -> None:
        self._user = user
        loaded: dict[UserAggregate, Any] = _loaded.__dict__.setdefault("aggregates", {})
        if user not in loaded:
            loaded[user] = load_aggregate(user.reference, user.search_path)
        self._aggregate = loaded[user]
        self._codec = AccumulatorCodec(sys.modules.get(type(self._aggregate).__module__))

    def folded(
        self,
        accumulators: Sequence[bytes | None],
        groups: Integers,
        values: pa.Array,
        joins: Bools | None,
    ) -> list[bytes | None]:
        """The accumulators with rows folded in; None for groups that have seen none.

        Args:
            accumulators: of the groups 0, 1, …
            groups: group of each row.
            values: the aggregate's argument column, in order of arrival.
            joins: whether a row is added or taken back; None: all are added.

        Raises:
            DataError: the aggregate failed; names it, the method, and the user's line.
        """
        if not len(groups):
            return list(accumulators)
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        values = values.take(pa.array(order))
        adds = np.ones(len(order), np.bool_) if joins is None else joins[order]
        starts = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]) | (adds[1:] != adds[:-1])))
        stops = np.append(starts[1:], len(order))
        columns = self._columns(values)
        rows = None if self._user.vectorised else list(zip(*columns, strict=True)) if columns else [()] * len(order)
        out = list(accumulators)
        current, held = -1, None
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            group = int(ordered[start])
            if group != current:
                if current >= 0:
                    out[current] = self._stored(held)
                current, held = group, self._opened(out[group])
            method = "accumulate" if adds[start] else "retract"
            if rows is None:
                held = self._called(method, held, [c.slice(start, stop - start) for c in columns])
            else:
                for arguments in rows[start:stop]:
                    held = self._called(method, held, arguments)
        out[current] = self._stored(held)
        return out

    def try_rows(self, values: pa.Array) -> None:
        """Fold each row into a new accumulator, to see whether the aggregate can take it; vectorised: all into one.

        Args:
            values: the aggregate's argument column.

        Raises:
            DataError: the aggregate failed; names it, the method, and the user's line.
        """
        if not len(values):
            return
        columns = self._columns(values)
        if self._user.vectorised:
            self._called("accumulate", self._opened(None), columns)
            return
        for arguments in zip(*columns, strict=True) if columns else [()] * len(values):
            self._called("accumulate", self._opened(None), arguments)

    def results(self, accumulators: Sequence[bytes | None]) -> pa.Array:
        """The value of each accumulator; of None, that of a new one.

        Raises:
            DataError: the aggregate failed, or gave something that is no value of the declared type.
        """
        values = [self._guarded("get_value", self._opened(a)) for a in accumulators]
        result = self._user.result
        try:
            return pa.array(values, result.arrow)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"aggregate {self._user.name} ('{self._user.reference}'): get_value gave what is no {result}: {error}",
                hint=f"give values of {result}, or declare another result type",
            ) from error

    def _columns(self, values: pa.Array) -> list[Any]:
        if not self._user.arguments:
            return []
        columns = values.flatten()
        if self._user.vectorised:
            return list(columns)
        return [_python_values(c, t) for c, t in zip(columns, self._user.arguments, strict=True)]

    def _called(self, method: str, held: Any, arguments: Sequence[Any]) -> Any:
        given = self._guarded(method, held, *arguments)
        return held if given is None else given

    def _opened(self, stored: bytes | None) -> Any:
        if stored is None:
            return self._guarded("create_accumulator")
        try:
            return self._codec.decode(stored)
        except AccumulatorError as error:
            raise StateError(
                f"aggregate {self._user.name} ('{self._user.reference}'): its accumulator in the state cannot be read: {error}",
                hint="start without the state of this aggregate, or with the functions and the flowrun that wrote it",
            ) from error

    def _stored(self, held: Any) -> bytes:
        try:
            return self._codec.encode(held)
        except AccumulatorError as error:
            raise StateError(
                f"aggregate {self._user.name} ('{self._user.reference}'): its accumulator cannot be stored: {error}",
                hint="make it of plain values: numbers, texts, times, lists, sets, dicts, NumPy or Arrow values, and dataclasses of "
                "these that are defined beside the aggregate",
            ) from error

    def _guarded(self, method: str, *arguments: Any) -> Any:
        called: Callable[..., Any] = getattr(self._aggregate, method)
        try:
            return called(*arguments)
        except Exception as error:
            raise DataError(
                f"aggregate {self._user.name} ('{self._user.reference}'): {method} failed: {describe(error)}{where(error, __file__)}"
            ) from error


def _python_values(column: pa.Array, kind: DataType) -> list[Any]:
    """The values as users' functions get them: nanoseconds are cut to microseconds, the finest that Python's datetimes hold."""
    if kind.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ) and column.type.unit == "ns":
        column = pc.cast(column, pa.timestamp("us", tz=column.type.tz), safe=False)
    elif kind.root is TypeRoot.TIME and column.type == pa.time64("ns"):
        column = pc.cast(column, pa.time64("us"), safe=False)
    values: list[Any] = column.to_pylist()
    return values
