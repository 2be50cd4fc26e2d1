"""Event time at the switch: it is there when a subtask has read its part, and does not run ahead of one that has not begun."""

from __future__ import annotations

from pathlib import Path

from flowrun.api.operator import InputStatus
from flowrun.connectors.hybrid.parts import End
from flowrun.core.clock import ManualClock
from flowrun.core.elements import MAX_TIMESTAMP
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.plan.compiled import Value
from flowrun.testing.source_harness import SourceHarness
from tests.connectors.hybrid.tables import BEGIN_MS, TIME, files, reference, source, stamp, write_rows

DELAY_S, SWITCH_S = 5, 60
STRATEGY = WatermarkStrategy.bounded(DELAY_S * 1000, Value(TIME), column="ts")


def first_of_two(folder: Path, *, switch: bool) -> SourceHarness:
    """The first of two subtasks, which reads all files of history."""
    write_rows(folder / "old" / "1.json", range(0, 50))
    write_rows(folder / "new" / "1.json", range(40, 100))
    options = {"switch_time": stamp(SWITCH_S)} if switch else {}
    made = source(reference("history,live", files("history", folder / "old"), files("live", folder / "new"), **options))
    enumerator = made.create_enumerator(2, ManualClock(0))
    enumerator.start()
    factory = SourceOperatorFactory(made, STRATEGY, name="rows_in")
    return SourceHarness(factory, made, enumerator=enumerator, parallelism=2)


def seconds(harness: SourceHarness) -> list[float]:
    """The watermarks, in seconds, without the last one of all."""
    return [(w - BEGIN_MS) / 1000 for w in harness.watermarks() if w != MAX_TIMESTAMP]


def let_the_other_switch(harness: SourceHarness) -> None:
    """The other subtask hears of the end of history, and asks again; what it gets then it leaves to the first one."""
    told = harness.enumerator.next_split(1)
    assert told is not None
    assert End.of(told) == End("history", 1)
    first = harness.enumerator.next_split(1)
    assert first is not None
    assert first.position["source"] == "live"
    harness.enumerator.add_splits_back([first])
    harness.settle()


def test_a_subtask_that_has_read_its_part_is_at_the_switch(tmp_path: Path) -> None:
    harness = first_of_two(tmp_path, switch=True)
    assert harness.run() is InputStatus.NOTHING_AVAILABLE
    assert [i for i, _ in harness.rows()] == list(range(50))
    assert seconds(harness)[-1] == SWITCH_S - 0.001, "beyond the last row of history, less the delay"


def test_event_time_stands_at_the_switch_until_all_have_come_to_it(tmp_path: Path) -> None:
    harness = first_of_two(tmp_path, switch=True)
    harness.run()
    reached = seconds(harness)
    assert harness.run() is InputStatus.NOTHING_AVAILABLE
    assert seconds(harness) == reached
    let_the_other_switch(harness)
    assert harness.run() is InputStatus.END_OF_INPUT
    assert [i for i, _ in harness.rows()] == [*range(50), *range(SWITCH_S, 100)]
    assert seconds(harness) == sorted(seconds(harness))
    assert seconds(harness)[-1] > SWITCH_S


def test_without_a_time_event_time_stands_where_it_has_come_to(tmp_path: Path) -> None:
    harness = first_of_two(tmp_path, switch=False)
    assert harness.run() is InputStatus.NOTHING_AVAILABLE
    assert 49 - DELAY_S - 1 <= seconds(harness)[-1] <= 49 - DELAY_S
    let_the_other_switch(harness)
    assert harness.run() is InputStatus.END_OF_INPUT
    assert [i for i, _ in harness.rows()] == [*range(50), *range(40, 100)]
