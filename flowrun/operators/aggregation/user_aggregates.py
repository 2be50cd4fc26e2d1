# ruff: noqa: ARG001 - kernels share one signature
"""Users' Python aggregates: as functions of the collected values of a group, and as accumulators that rows are folded into.

An accumulator is kept as JSON text (`accumulator_codec`): state that never changes in place, and runs no code when it is read. Rows of a
group are folded in order of arrival.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.accumulators import members_that_came, version_of
from flowrun.api.aggregate import AggregateKernel, UserAggregate, WithArguments
from flowrun.api.signatures import signature_of
from flowrun.core.arrays import Bools, Integers
from flowrun.core.types import BOOLEAN, DataType, row
from flowrun.errors import DataError, FlowrunError, StateError
from flowrun.operators.aggregation.accumulator_codec import AccumulatorCodec, AccumulatorError
from flowrun.operators.data_errors import describe_row
from flowrun.operators.function_loading import describe, where
from flowrun.operators.user_functions import load_aggregate
from flowrun.operators.user_values import UNFIT, Intake, TakenColumns, array_of


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
    """Folds rows into stored accumulators. A subtask has one instance of the aggregate."""

    def __init__(self, user: UserAggregate) -> None:
        self._user = user
        self._place = f"aggregate {user.name} ('{user.reference}')"
        self._aggregate: Any = load_aggregate(user.reference, user.search_path)
        self._version = version_of(self._aggregate)
        self._codec = AccumulatorCodec(sys.modules.get(type(self._aggregate).__module__), self._version)
        self._members = members_that_came(self._aggregate)
        signature = signature_of(self._aggregate.accumulate, 1)
        self._intake = Intake(signature, len(user.arguments), vectorised=user.vectorised)

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
        rows = _Rows(self._intake, values, self._user)
        out = list(accumulators)
        current, held = -1, None
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            group = int(ordered[start])
            if group != current:
                if current >= 0:
                    out[current] = self._stored(held)
                current, held = group, self._opened(out[group])
            held = self._called("accumulate" if adds[start] else "retract", held, rows, start, stop)
        out[current] = self._stored(held)
        return out

    def try_rows(self, values: pa.Array) -> None:
        """Fold each row into a new accumulator, to see whether the aggregate can take it; vectorised: all into one.

        Args:
            values: the aggregate's argument column.

        Raises:
            DataError: the aggregate failed; names it, the method, the row, and the user's line.
        """
        rows = _Rows(self._intake, values, self._user)
        step = len(values) if self._user.vectorised else 1
        for start in range(0, len(values), max(step, 1)):
            self._called("accumulate", self._opened(None), rows, start, start + step)

    def results(self, accumulators: Sequence[bytes | None]) -> pa.Array:
        """The value of each accumulator; of None, that of a new one.

        Raises:
            DataError: the aggregate failed, or gave something that is no value of the declared type.
        """
        values = [self._guarded("get_value", self._opened(a)) for a in accumulators]
        result = self._user.result
        try:
            return array_of(values, result)
        except UNFIT as error:
            raise DataError(
                f"{self._place}: get_value gave what is no {result}: {error}",
                hint=f"give values of {result}, or declare another result type",
            ) from error

    def _called(self, method: str, held: Any, rows: _Rows, start: int, stop: int) -> Any:
        """The accumulator with rows folded in, one by one, or all at once if the aggregate is vectorised."""
        called: Callable[..., Any] = getattr(self._aggregate, method)
        place = start
        try:
            for row, arguments in rows.calls(start, stop):
                place = row
                given = called(held, *arguments)
                held = held if given is None else given
        except FlowrunError:
            raise
        except Exception as error:
            shown = rows.described(place, stop)
            hint = "handle such input in the aggregate, or drop it with a filter before"
            raise DataError(
                f"{self._place}: {method} failed: {describe(error)}{where(error, __file__)}{shown}", hint=hint
            ) from error
        return held

    def _opened(self, stored: bytes | None) -> Any:
        if stored is None:
            return self._guarded("create_accumulator")
        try:
            version = self._codec.version_of(stored)
            if version == self._version:
                return self._filled(self._codec.decode(stored))
            earlier = self._codec.decode_earlier(stored)[1]
        except AccumulatorError as error:
            raise StateError(
                f"{self._place}: its accumulator in the state cannot be read: {error}",
                hint="start without the state of this aggregate, or with the functions and the flowrun that wrote it",
            ) from error
        if version > self._version or not callable(getattr(self._aggregate, "migrate", None)):
            raise StateError(
                f"{self._place}: its accumulator in the state is of version {version}, and the aggregate of version {self._version}",
                hint="write def migrate(self, old, version), which gives the new accumulator; versions only grow",
            )
        return self._guarded("migrate", earlier, version)

    def _filled(self, held: Any) -> Any:
        """A stored accumulator that is a dict, with the members that a `TypedDict` has gained since."""
        if self._members and isinstance(held, dict):
            for name, make in self._members.items():
                if name not in held:
                    held[name] = make()
        return held

    def _stored(self, held: Any) -> bytes:
        try:
            return self._codec.encode(held)
        except AccumulatorError as error:
            raise StateError(
                f"{self._place}: its accumulator cannot be stored: {error}",
                hint="make it of plain values: numbers, texts, times, lists, sets, dicts, NumPy or Arrow values, and dataclasses of "
                "these that are defined beside the aggregate",
            ) from error

    def _guarded(self, method: str, *arguments: Any) -> Any:
        called: Callable[..., Any] = getattr(self._aggregate, method)
        try:
            return called(*arguments)
        except FlowrunError:
            raise
        except Exception as error:
            raise DataError(f"{self._place}: {method} failed: {describe(error)}{where(error, __file__)}") from error


class _Rows:
    """The rows of an aggregate's argument column, as the aggregate takes them."""

    def __init__(self, intake: Intake, values: pa.Array, user: UserAggregate) -> None:
        self._values, self._intake = values, intake
        columns = values.flatten() if user.arguments else []
        self._vectorised = user.vectorised
        if user.vectorised:
            self._taken: TakenColumns = intake.columns(columns, len(values))
            self._before = self._taken.rows_before(len(values))
        else:
            self._rows = list(zip(*intake.values(columns), strict=True)) if columns else [()] * len(values)

    def calls(self, start: int, stop: int) -> Iterator[tuple[int, Sequence[Any]]]:
        """(the first row, arguments) of each call for some rows."""
        if not self._vectorised:
            yield from enumerate(self._rows[start:stop], start)
            return
        first, last = (start, stop) if self._before is None else (int(self._before[start]), int(self._before[stop]))
        if last > first:
            yield start, self._taken.sliced(first, last)

    def described(self, row: int, stop: int) -> str:
        """What a call that failed was given, for its message."""
        names = self._intake.names
        if not names:
            return ""
        columns = pa.RecordBatch.from_arrays(self._values.flatten()[: len(names)], list(names))
        if self._vectorised and stop - row > 1:
            return f"; it was given {stop - row} rows, which begin with {describe_row(columns, row)}"
        return f"; the row has {describe_row(columns, row)}"
