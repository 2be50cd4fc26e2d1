"""What is promised of a sink after a failure, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowrun.api.source import Delivery
from flowrun.core.recovery import CheckpointSettings, RestartSettings
from flowrun.plan.guarantees import Endpoint, batch_guarantees, plan_guarantees, sink_guarantee
from flowrun.plan.nodes import Settings, TableReference
from tests.plan.plans import calc, plan, scan, sink

FILES = Endpoint("in", "filesystem", Delivery.EXACTLY_ONCE)
SOCKET = Endpoint("s", "socket", Delivery.AT_MOST_ONCE)
QUEUE = Endpoint("q", "queue", Delivery.AT_LEAST_ONCE)
COMMITTED = Endpoint("out", "filesystem", Delivery.EXACTLY_ONCE)
PRINTED = Endpoint("out", "print", Delivery.AT_LEAST_ONCE)
EXACT = CheckpointSettings(1_000)
LEAST = CheckpointSettings(1_000, mode="at_least_once")
RESTART = RestartSettings("fixed_delay")


@pytest.mark.parametrize(
    ("sink", "sources", "checkpoint", "restart", "unbounded", "expected"),
    [
        (COMMITTED, [FILES], EXACT, None, True, "exactly once"),
        (COMMITTED, [FILES, FILES], EXACT, RESTART, True, "exactly once"),
        (
            replace(COMMITTED, condition="if the server heeds keys"),
            [FILES],
            EXACT,
            None,
            True,
            "exactly once — if the server heeds keys",
        ),
        (PRINTED, [FILES], EXACT, None, True, "at least once — connector print cannot take back rows"),
        (
            replace(PRINTED, connector="jdbc", offers_exactly_once=True),
            [FILES],
            EXACT,
            None,
            True,
            "at least once — connector jdbc writes rows as they come, unless 'sink.delivery-guarantee' = 'exactly-once'",
        ),
        (
            COMMITTED,
            [FILES],
            LEAST,
            None,
            True,
            "at least once — checkpoint mode at_least_once: state may count rows twice",
        ),
        (COMMITTED, [SOCKET], EXACT, None, True, "at most once — source 's': connector socket cannot replay"),
        (COMMITTED, [FILES, SOCKET], EXACT, None, True, "at most once — source 's': connector socket cannot replay"),
        (
            PRINTED,
            [SOCKET],
            EXACT,
            None,
            True,
            "no guarantee — source 's': connector socket cannot replay; connector print cannot take back rows",
        ),
        (COMMITTED, [QUEUE], EXACT, None, True, "at least once — source 'q': connector queue may replay rows twice"),
        (
            replace(COMMITTED, delivery=Delivery.AT_MOST_ONCE),
            [FILES],
            EXACT,
            None,
            True,
            "at most once — connector filesystem does not write rows again",
        ),
        (COMMITTED, [FILES], None, None, True, "at most once — no checkpoints: a job that fails cannot be resumed"),
        (
            PRINTED,
            [FILES],
            None,
            RestartSettings("none"),
            False,
            "at most once — no checkpoints: a job that fails cannot be resumed",
        ),
        (COMMITTED, [FILES], None, RESTART, False, "at most once — no checkpoints: a restart begins anew"),
        (
            COMMITTED,
            [FILES],
            None,
            RESTART,
            True,
            "no guarantee — no checkpoints: a restart begins anew, and what was written before it stays",
        ),
        (
            PRINTED,
            [FILES],
            None,
            RESTART,
            False,
            "no guarantee — no checkpoints: a restart begins anew, and what was written before it stays",
        ),
    ],
)
def test_the_weakest_part_decides_and_is_named(
    sink: Endpoint,
    sources: list[Endpoint],
    checkpoint: CheckpointSettings | None,
    restart: RestartSettings | None,
    unbounded: bool,
    expected: str,
) -> None:
    assert str(sink_guarantee(sink, sources, checkpoint, restart, unbounded=unbounded)) == f"sink 'out': {expected}"


@pytest.mark.parametrize(
    ("sink", "sources", "expected"),
    [
        (
            COMMITTED,
            [FILES],
            "exactly once — source 'in' is read again from the places that a checkpoint holds; "
            "connector filesystem shows rows once their checkpoint is complete",
        ),
        (
            replace(COMMITTED, connector="http", stages=True, condition="if the server heeds keys"),
            [FILES, replace(FILES, name="b"), replace(FILES, name="a")],
            "exactly once — sources 'a', 'b' and 'in' are read again from the places that a checkpoint holds; "
            "connector http keeps rows beside the checkpoint and writes them once it is complete; if the server heeds keys",
        ),
        (PRINTED, [FILES], "at least once — connector print cannot take back rows"),
    ],
)
def test_why_it_holds_is_explained(sink: Endpoint, sources: list[Endpoint], expected: str) -> None:
    assert sink_guarantee(sink, iter(sources), EXACT, None).explained == f"sink 'out': {expected}"


def test_each_sink_of_a_plan_answers_for_its_own_sources() -> None:
    orders = scan()
    both = replace(plan(calc(orders, "*"), orders), settings=Settings(checkpoint=EXACT))
    found = plan_guarantees(both)
    assert [g.delivery for g in found] == [Delivery.AT_LEAST_ONCE, Delivery.AT_LEAST_ONCE]
    assert "blackhole" in found[0].reasons[0]


def test_rows_that_wait_for_checkpoints_are_written_as_they_come_where_there_are_none() -> None:
    options = {"topic": "t", "properties.bootstrap.servers": "b:1", "sink.delivery-guarantee": "exactly-once"}
    table = TableReference("out", "kafka", {**options, "sink.transactional-id-prefix": "p"}, "json")
    into_kafka = replace(sink(scan()), table=table)
    with_checkpoints = plan(into_kafka, settings=Settings(checkpoint=EXACT))
    assert plan_guarantees(with_checkpoints)[0].word == "exactly once"
    assert (
        plan_guarantees(with_checkpoints)[0].grounds[-1].startswith("connector kafka keeps rows beside the checkpoint")
    )
    assert batch_guarantees(with_checkpoints)[0].word == "at least once"
    restarted = plan(into_kafka, settings=Settings(restart=RESTART))
    assert "what was written before it stays" in plan_guarantees(restarted)[0].reasons[0]
