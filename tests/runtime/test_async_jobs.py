"""Jobs with asynchronous functions: checkpoints pass while nothing answers, cancelling ends them at once, and every row counts once."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from checkpoint_fakes import MemoryStorage, Numbers, Table, pipeline
from runtime_fakes import until
from test_recovery import AT_ONCE, BY_HAND, NEVER, OFTEN, checkpoint, finish, running

from flowrun.api.async_function import AsyncFunction
from flowrun.core.recovery import CheckpointSettings
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.operators.asynchronous.factories import AsyncFunctionFactory, WaitMode
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.implementations import create_operator
from flowrun.runtime.jobmaster.job_state import RestorePoint
from flowrun.runtime.lifecycle import JobState

ROWS = Schema.of(k=BIGINT, v=BIGINT)
TOTAL = 200
UNALIGNED = CheckpointSettings(interval_ms=3_600_000, unaligned=True)


class Service:
    """What the functions of this module ask."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.fails_at: int | None = None
        self.asked: list[int] = []
        self.lock = threading.Lock()


class Ask(AsyncFunction):
    """Passes rows on when the service answers."""

    service: ClassVar[Service]

    async def async_invoke(self, row: dict[str, Any], context: Any) -> dict[str, Any]:
        service = Ask.service
        with service.lock:
            service.asked.append(row["v"])
            if service.fails_at == row["v"]:
                service.fails_at = None
                raise ValueError("the service is confused")
        await asyncio.sleep(row["v"] % 3 / 2000)
        while not service.answers.is_set():
            await asyncio.sleep(0.001)
        return row


@pytest.fixture(autouse=True)
def service() -> Iterator[Service]:
    Ask.service = Service()
    yield Ask.service
    Ask.service.answers.set()


def asking(mode: WaitMode = WaitMode.ORDERED, capacity: int = 5) -> Callable[[], Any]:
    return partial(
        create_operator,
        AsyncFunctionFactory(FunctionRecipe.of(Ask()), ROWS, ROWS, mode, capacity=capacity),
    )


@pytest.mark.parametrize("mode", list(WaitMode))
@pytest.mark.parametrize(("parallelism", "chained"), [(1, True), (3, False)])
def test_a_failure_is_made_good(service: Service, mode: WaitMode, parallelism: int, chained: bool) -> None:
    service.fails_at = 90
    source, table, storage = Numbers(TOTAL), Table(), MemoryStorage()
    options = {"parallelism": parallelism, "chained": chained, "checkpoint": OFTEN, "restart": AT_ONCE}
    result = finish(pipeline(source, table, between=asking(mode), **options), storage)
    assert result.restarts == 1
    assert table.rows() == list(range(TOTAL))


@pytest.mark.parametrize("mode", list(WaitMode))
@pytest.mark.parametrize(("chained", "settings"), [(True, BY_HAND), (False, UNALIGNED)])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_checkpoint_completes_while_nothing_answers_and_another_job_goes_on_from_it(
    service: Service, mode: WaitMode, chained: bool, settings: CheckpointSettings, parallelism: int
) -> None:
    source, table, storage = Numbers(TOTAL, released=10), Table(), MemoryStorage()
    service.answers.clear()
    options = {"chained": chained, "checkpoint": settings, "restart": NEVER}
    graph = pipeline(source, table, between=asking(mode, capacity=2), parallelism=2, **options)
    with running(graph, storage) as job_master:
        until(lambda: len(service.asked) == 4)
        checkpoint(job_master)
        assert len(service.asked) == 4, "no more calls are under way than there is room for"
        assert table.rows() == []
    service.answers.set()
    source.release()
    again = pipeline(source, table, between=asking(mode), parallelism=parallelism, **options)
    finish(again, storage, storage.newest)
    assert table.rows() == list(range(TOTAL))


@pytest.mark.parametrize("chained", [True, False])
def test_cancelling_ends_a_job_of_which_nothing_answers(service: Service, chained: bool) -> None:
    service.answers.clear()
    graph = pipeline(Numbers(TOTAL), Table(), between=asking(capacity=2), chained=chained)
    with running(graph, MemoryStorage(), checkpoints=False) as job_master:
        until(lambda: len(service.asked) == 4)
        job_master.cancel()
        result = job_master.wait()
    assert result is not None
    assert result.state is JobState.CANCELED


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("drain", [True, False])
def test_a_job_stops_with_a_savepoint_that_holds_what_is_under_way(
    service: Service, chained: bool, drain: bool
) -> None:
    source, table, storage = Numbers(TOTAL, released=10), Table(), MemoryStorage()
    options = {"chained": chained, "checkpoint": BY_HAND, "restart": NEVER, "between": asking(capacity=3)}
    with running(pipeline(source, table, **options), storage) as job_master:
        until(lambda: len(service.asked) > 10)
        path = checkpoint(job_master, savepoint=True, stop=True, drain=drain)
        result = job_master.wait()
    assert result is not None
    assert result.state is JobState.FINISHED
    if drain:
        assert len(table.rows()) == len(set(table.rows()))
        return
    source.release()
    finish(pipeline(source, table, **options), storage, RestorePoint(storage.savepoints[path], path))
    assert table.rows() == list(range(TOTAL))


def test_the_end_of_the_input_waits_for_what_is_under_way_and_checkpoints_pass_meanwhile(service: Service) -> None:
    source, table, storage = Numbers(8), Table(), MemoryStorage()
    service.answers.clear()
    options = {"chained": True, "checkpoint": BY_HAND, "restart": NEVER, "parallelism": 1}
    with running(pipeline(source, table, between=asking(capacity=20), **options), storage) as job_master:
        until(lambda: len(service.asked) == 8)
        checkpoint(job_master)
        service.answers.set()
        result = job_master.wait()
    assert result is not None
    assert table.rows() == list(range(8))
