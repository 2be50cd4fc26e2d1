"""Asynchronous functions for tests: a test decides when which call ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.async_function import AsyncFunction


class Gate:
    """Lets calls end: those of the rows that were let through. Thread-safe."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._open: set[Any] = set()
        self._waiting: dict[Any, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}
        self.begun: list[Any] = []
        self.cancelled: list[Any] = []
        self.life: list[str] = []

    def let_through(self, *keys: Any) -> None:
        """Calls of these rows end."""
        with self._condition:
            self._open.update(keys)
            for key in keys:
                if key in self._waiting:
                    loop, event = self._waiting.pop(key)
                    loop.call_soon_threadsafe(event.set)

    def wait_until_begun(self, count: int) -> None:
        """Wait until so many calls were begun."""
        with self._condition:
            if not self._condition.wait_for(lambda: len(self.begun) >= count, 10):
                raise AssertionError(f"{count} calls were expected, {self.begun} were begun")

    async def passed(self, key: Any) -> None:
        """Wait until the row is let through."""
        with self._condition:
            self.begun.append(key)
            self._condition.notify_all()
            if key in self._open:
                return
            event = asyncio.Event()
            self._waiting[key] = (asyncio.get_running_loop(), event)
        try:
            await event.wait()
        except asyncio.CancelledError:
            self.cancelled.append(key)
            raise


GATES: dict[str, Gate] = {}
"""By name, as functions are made by reference."""


class Gated(AsyncFunction):
    """Gives a row with `n` doubled once its gate lets it through."""

    def __init__(self, gate: str) -> None:
        self.gate = GATES[gate]

    async def open(self, context: Any) -> None:
        self.gate.life.append(f"open {context.subtask}/{context.parallelism}")

    async def async_invoke(self, row: dict[str, Any], context: Any) -> Mapping[str, Any]:
        await self.gate.passed(row["n"])
        return {"n": row["n"] * 2}

    async def close(self) -> None:
        self.gate.life.append("close")


class GatedWithTimeout(Gated):
    def timeout(self, row: dict[str, Any], context: Any) -> Mapping[str, Any]:
        return {"n": -row["n"]}


class Doubled(AsyncFunction):
    """Answers after a while that depends on the row, so answers come in another order."""

    def __init__(self, most_ms: float = 2) -> None:
        self.most_ms = most_ms

    async def async_invoke(self, row: dict[str, Any], context: Any) -> Mapping[str, Any]:
        await asyncio.sleep(row["n"] * 7919 % 5 / 5000 * self.most_ms)
        return {"n": row["n"] * 2}


class Copies(AsyncFunction):
    """Gives each row as often as it says, and tells of it beside."""

    async def async_invoke(self, row: dict[str, Any], context: Any) -> Any:
        for copy in range(row["n"]):
            await asyncio.sleep(0)
            context.side_output("copies", {"n": copy})
            yield row


class Plain(AsyncFunction):
    """Without the context."""

    async def async_invoke(self, row: dict[str, Any]) -> Any:
        return None if row["n"] < 0 else [row, row]


class Unlucky(AsyncFunction):
    """Raises for multiples of three."""

    async def async_invoke(self, row: dict[str, Any], context: Any) -> Any:
        if row["n"] % 3 == 0:
            raise ValueError(f"no luck with {row['n']}")
        return row


class Impatient(AsyncFunction):
    """Has a time limit of its own for multiples of three."""

    async def async_invoke(self, row: dict[str, Any], context: Any) -> Any:
        async with asyncio.timeout(0.001 if row["n"] % 3 == 0 else 60):
            await asyncio.sleep(30 if row["n"] % 3 == 0 else 0)
        return row


class WrongRows(AsyncFunction):
    """Gives a text where a number must be, for multiples of three."""

    async def async_invoke(self, row: dict[str, Any], context: Any) -> Any:
        return {"n": "three"} if row["n"] % 3 == 0 else row


class ByBatch(AsyncFunction):
    async def async_invoke_batch(self, batch: pa.RecordBatch, context: Any) -> Any:
        await asyncio.sleep(0)
        values = batch.column("n").to_pylist()
        if any(n % 3 == 0 for n in values):
            raise ValueError("no luck")
        context.side_output("copies", batch)
        return pa.record_batch({"n": pc.multiply(batch.column("n"), 2)})


class EvenOnly(AsyncFunction):
    async def async_invoke_batch(self, batch: pa.RecordBatch, context: Any) -> Any:
        parents = [i for i, n in enumerate(batch.column("n").to_pylist()) if n % 2 == 0]
        return batch.take(pa.array(parents, pa.int64())), parents


class Flaky(AsyncFunction):
    """Raises so many times for each row, and counts."""

    calls: ClassVar[dict[int, int]] = {}

    def __init__(self, times: int) -> None:
        self.times = times

    async def async_invoke(self, row: dict[str, Any], context: Any) -> Any:
        Flaky.calls[row["n"]] = context.attempt
        if context.attempt <= self.times:
            raise ConnectionError("not now")
        return {"n": context.attempt}


class Empty(AsyncFunction):
    """Gives nothing but at the third attempt."""

    async def async_invoke(self, row: dict[str, Any], context: Any) -> Any:
        return [row] if context.attempt == 3 else []


def is_empty(result: Any) -> bool:
    return not result


def is_value_error(error: Exception) -> bool:
    return isinstance(error, ValueError)


class NotAsync(AsyncFunction):
    def async_invoke(self, row: Any, context: Any) -> Any:
        return row


class Nothing(AsyncFunction):
    async def async_invok(self, row: Any, context: Any) -> Any:
        return row


class Both(AsyncFunction):
    async def async_invoke(self, row: Any, context: Any) -> Any: ...
    async def async_invoke_batch(self, batch: Any, context: Any) -> Any: ...


class TooMany(AsyncFunction):
    async def async_invoke(self, row: Any, context: Any, more: Any) -> Any: ...
