"""Asynchronous functions: users' classes that ask something outside for each row, many rows at a time.

A function extends `AsyncFunction` and has **either**

* `async def async_invoke(self, row, context)`, for each row, a dict; **or**
* `async def async_invoke_batch(self, batch, context)`, for each `pa.RecordBatch` of at most so many rows as the step says.

What comes back: nothing, a row, or an iterable of rows (an `async def` that yields them does, too); by batch nothing, a batch with as many
rows as it got, or a batch with the position of each row's parent. Rows keep the event time of the row that they came from.

    class Enrich(AsyncFunction):
        async def open(self, context):
            self.session = aiohttp.ClientSession()

        async def async_invoke(self, row, context):
            async with self.session.get(f"http://users/{row['user']}") as response:
                return {**row, "country": (await response.json())["country"]}

        async def close(self):
            await self.session.close()

A function is made once a subtask. All its methods are called by one thread of its own, that of the subtask's event loop: what it keeps
needs no locks, and a method that blocks keeps all other calls waiting.

Calls that are under way when a checkpoint is taken are made again if the job goes back to it: each row is *called* at least once, while its
results count exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from flowrun.api.keyed_state import Values
from flowrun.api.metrics import SubtaskContext
from flowrun.core.record import record
from flowrun.errors import PipelineError


class AsyncOpenContext(SubtaskContext, Protocol):
    """What `open` is told."""


class AsyncContext(Protocol):
    """The context of one call with one row."""

    @property
    def timestamp(self) -> int | None:
        """Event time of the row, ms; None if the stream has no event time."""
        ...

    @property
    def attempt(self) -> int:
        """1 for the first call with this row, 2 for its first repetition, …"""
        ...

    def side_output(self, name: str, row: Mapping[str, Any], timestamp: int | None = None) -> None:
        """Send a row to a declared side output, together with what the call gives: not at all if it fails."""
        ...


class AsyncBatchContext(Protocol):
    """The context of one call with one batch."""

    @property
    def timestamps(self) -> pa.Int64Array | None:
        """Event time of each row, ms; None if the stream has no event time."""
        ...

    @property
    def attempt(self) -> int:
        """1 for the first call with these rows, 2 for its first repetition, …"""
        ...

    def side_output(
        self, name: str, rows: pa.RecordBatch, parents: Values | None = None, timestamps: Values | None = None
    ) -> None:
        """Send rows to a declared side output, together with what the call gives: not at all if it fails."""
        ...


class AsyncFunction:
    """A function that asks something outside; see the module.

    It may have a method `timeout(self, row, context)` (of functions on batches: `timeout(self, batch, context)`), plain or `async`: it
    gives the rows for those whose time is up, whose call is cancelled. Without one that is an error.
    """

    def open(self, context: AsyncOpenContext) -> Any:
        """Called once before all else, with the event loop running: connect. May be `async`."""

    def close(self) -> Any:
        """Called once at the end, after an error too: disconnect. May be `async`."""


Predicate: TypeAlias = Callable[[Any], bool] | str
"""A function, or `module:function`."""


@record
class AsyncRetryStrategy:
    """Which calls are made again, how often, and how long after. Made by `fixed_delay` or `exponential_backoff`.

    The time allowed for a row holds for all its calls together. A job that goes back to a checkpoint counts anew.

    Attributes:
        max_attempts: how often a call is repeated at most, beside the first time.
        delay_ms: before the first repetition.
        multiplier: by which each delay is longer than the one before.
        max_delay_ms: no delay is longer.
        result_predicate: says of what a call gave (as it was given) whether to repeat the call; None: never.
        exception_predicate: the same of an exception that a call raised; None: always.
    """

    max_attempts: int
    delay_ms: int
    multiplier: float = 1.0
    max_delay_ms: int | None = None
    result_predicate: Predicate | None = None
    exception_predicate: Predicate | None = None

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise PipelineError.of(
                f"a retry strategy repeats a call at least once, not {self.max_attempts} times", "leave it out for none"
            )
        if self.delay_ms < 0 or (self.max_delay_ms is not None and self.max_delay_ms < self.delay_ms):
            raise PipelineError.of(
                f"a retry strategy cannot wait for {self.delay_ms} ms"
                + ("" if self.max_delay_ms is None else f" and at most {self.max_delay_ms} ms"),
                "give 0 ≤ delay ≤ maximal delay",
            )
        if not self.multiplier >= 1:
            raise PipelineError.of(
                f"a retry strategy with the multiplier {self.multiplier} would wait less and less", "give 1 or more"
            )

    @classmethod
    def fixed_delay(
        cls,
        max_attempts: int,
        delay_ms: int,
        *,
        result_predicate: Predicate | None = None,
        exception_predicate: Predicate | None = None,
    ) -> AsyncRetryStrategy:
        """Repeat a call at most `max_attempts` times, each `delay_ms` after the one before."""
        return cls(max_attempts, delay_ms, 1.0, None, result_predicate, exception_predicate)

    @classmethod
    def exponential_backoff(
        cls,
        max_attempts: int,
        initial_delay_ms: int,
        max_delay_ms: int,
        multiplier: float = 2.0,
        *,
        result_predicate: Predicate | None = None,
        exception_predicate: Predicate | None = None,
    ) -> AsyncRetryStrategy:
        """Repeat a call at most `max_attempts` times, each delay `multiplier` times as long as the one before, up to `max_delay_ms`."""
        return cls(
            max_attempts,
            initial_delay_ms,
            multiplier,
            max_delay_ms,
            result_predicate,
            exception_predicate,
        )

    def delay_after(self, attempt: int) -> int:
        """How long to wait after the call number `attempt` (from 1), ms.

        >>> [AsyncRetryStrategy.exponential_backoff(9, 100, 500).delay_after(n) for n in (1, 2, 3, 4, 5000)]
        [100, 200, 400, 500, 500]
        >>> AsyncRetryStrategy.fixed_delay(3, 50).delay_after(3)
        50
        """
        if self.multiplier == 1:
            return self.delay_ms
        most = self.max_delay_ms if self.max_delay_ms is not None else 2**53
        try:
            return round(min(self.delay_ms * self.multiplier ** (attempt - 1), most))
        except OverflowError:
            return most
