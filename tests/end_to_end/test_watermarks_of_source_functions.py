"""Watermarks that a source function sends between rows reach timers between the same rows, whatever the batches and exchanges."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flowrun.api.process_function import OpenContext, ProcessContext, ProcessFunction
from flowrun.api.source import Boundedness, Delivery, JsonValue, ReaderContext, SourceReader, Split, SplitEnumerator
from flowrun.api.source_function import SourceContext
from flowrun.connectors import memory
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.connectors.source_function_reader import SourceFunctionReader
from flowrun.core.clock import Clock
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.datastream import DataStream, StreamExecutionEnvironment
from flowrun.graph.job_graph import JobSettings
from flowrun.runners.embedded import run_embedded
from tests.end_to_end.timed_functions import Diary
from tests.slices import everyday

BATCHES = (1, 7, 131_072)
ROWS = Schema.of(k=STRING, wait=BIGINT, number=BIGINT)
TOLD = Schema.of(k=STRING, what=STRING, at=BIGINT, seen=BIGINT, watermark=BIGINT)
Element = tuple[str, int, int] | int
"""A row (key, wait, event time), or a watermark."""
Told = dict[str, list[tuple[Any, ...]]]


def make_elements(rng: random.Random) -> list[Element]:
    top, elements = 0, list[Element]()
    for _ in range(rng.choice((3, 40, 300))):
        top += rng.choice((0, 1, rng.randrange(30)))
        if rng.random() < 0.3:
            elements.append(top - rng.randrange(40))
        else:
            wait = rng.choice((0, rng.randrange(60), rng.randrange(400), -rng.randrange(1, 60)))
            elements.append((rng.choice("abcd"), wait, top - rng.choice((0, rng.randrange(40)))))
    return elements


def in_time(elements: list[Element], suffix: str = "") -> list[Element]:
    """The elements with no row that is late, and no timer that is deleted: what happens does not depend on how late a row is."""
    found, watermark = list[Element](), MIN_TIMESTAMP
    for element in elements:
        if isinstance(element, int):
            watermark = max(watermark, element)
            found.append(element)
        else:
            key, wait, at = element
            found.append((key + suffix, abs(wait), max(at, watermark + 1)))
    return found


def diary(elements: list[Element]) -> Told:
    """What `Diary` tells of each key if rows and watermarks come one by one."""
    told: Told = defaultdict(list)
    seen: dict[str, int] = defaultdict(int)
    timers: dict[str, set[int]] = defaultdict(set)
    watermark = MIN_TIMESTAMP
    for element in [*elements, MAX_TIMESTAMP]:
        if not isinstance(element, int):
            key, wait, at = element
            seen[key] += 1
            (timers[key].add if wait >= 0 else timers[key].discard)(at + abs(wait))
            told[key].append((key, "row", at, seen[key], watermark))
            continue
        if element <= watermark:
            continue
        watermark = element
        for key, waiting in timers.items():
            while waiting and (at := min(waiting)) <= watermark:
                waiting.remove(at)
                if at % 7 == 0:
                    waiting.add(at + 3)
                told[key].append((key, "timer", at, seen[key], watermark))
    return told


class Telling:
    """A source function that sends elements, rows in batches of random sizes, and is idle now and then if it may be."""

    def __init__(self, elements: list[Element], rests: bool) -> None:
        self._elements = elements
        self._rng = random.Random(1)
        self._rests = 0.1 if rests else 0.0

    def run(self, context: SourceContext) -> None:
        waiting: list[tuple[int, tuple[str, int, int]]] = []

        def send() -> None:
            if waiting:
                numbers, rows = zip(*waiting, strict=True)
                keys, waits, times = zip(*rows, strict=True)
                columns = pa.record_batch({"k": keys, "wait": waits, "number": numbers}, schema=ROWS.arrow)
                context.collect_with_timestamps(columns, pa.array(times, pa.int64()))
                waiting.clear()

        for number, element in enumerate(self._elements):
            if isinstance(element, int):
                send()
                context.emit_watermark(element)
                if self._rng.random() < self._rests:
                    context.mark_as_temporarily_idle()
            else:
                waiting.append((number, element))
                if self._rng.random() < 0.3:
                    send()
        send()

    def cancel(self) -> None:
        """It sends without waiting."""


@record
class TellingSource:
    """One split. `rests`: it is idle now and then, when others, or its rows on other ways, are not waited for."""

    elements: list[Element]
    rests: bool

    @property
    def schema(self) -> Schema:
        return ROWS

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def delivery(self) -> Delivery:
        return Delivery.AT_MOST_ONCE

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        return ListedSplitEnumerator([Split("all", {})], restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return SourceFunctionReader(context, lambda _: Telling(self.elements, self.rests))


def first_letter(batch: RecordBatch, channels: int) -> np.ndarray[Any, Any]:
    return np.array([ord(k) % channels for k in batch.columns.column("k").to_pylist()])


def all_rows(row: Mapping[str, Any]) -> bool:
    return True


class OwnRows(ProcessFunction):
    """Of rows that all subtasks get those of its share of the keys."""

    def open(self, context: OpenContext) -> None:
        self._share, self._shares = context.subtask, context.parallelism

    def process_element(self, row: Mapping[str, Any], context: ProcessContext) -> Mapping[str, Any] | None:
        return row if ord(row["k"]) % self._shares == self._share else None


EXACT: dict[str, Callable[[DataStream], DataStream]] = {
    "nothing": lambda s: s,
    "rescale": lambda s: s.rescale().filter(all_rows).set_parallelism(1),
    "global": lambda s: s.global_().filter(all_rows).set_parallelism(1).process(OwnRows).set_parallelism(1),
}
"""Ways on which rows and watermarks stay in order."""
SPREADING: dict[str, Callable[[DataStream], DataStream]] = {
    "rebalance": lambda s: s.rebalance().filter(all_rows),
    "custom": lambda s: s.partition_custom_batches(first_letter).filter(all_rows),
    "broadcast": lambda s: s.broadcast().process(OwnRows),
}
"""Ways over several subtasks: which of them is ahead is chance, but none lets a watermark overtake rows."""


def run(
    sources: list[list[Element]], shape: Callable[[DataStream], DataStream], batch_rows: int, parallelism: int
) -> Told:
    memory.clear()
    env = StreamExecutionEnvironment(parallelism=parallelism, job=JobSettings(batch_rows=batch_rows))
    rests = len(sources) == 1 and shape in EXACT.values()
    streams = [env.from_source(TellingSource(e, rests)).set_parallelism(1) for e in sources]
    shaped = [shape(s) for s in streams]
    rows = shaped[0].union(*shaped[1:]) if len(shaped) > 1 else shaped[0]
    rows.key_by("k").process(Diary, TOLD).sink_to(memory.MemorySink("out", TOLD))
    env.execute(run_embedded)
    found: Told = defaultdict(list)
    for batch in memory.take("out"):
        for row in batch.columns.to_pylist():
            found[row["k"]].append(tuple(row.values()))
    return found


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("way", EXACT)
@pytest.mark.parametrize("seed", everyday(range(8), 8))
def test_timers_see_the_rows_that_were_sent_before_the_watermark(seed: int, way: str, parallelism: int) -> None:
    elements = make_elements(random.Random(seed))
    wanted = diary(elements)
    for batch_rows in BATCHES:
        assert run([elements], EXACT[way], batch_rows, parallelism) == wanted, f"batches of {batch_rows}"


@pytest.mark.parametrize("way", SPREADING)
@pytest.mark.parametrize("seed", everyday(range(8), 8))
def test_no_watermark_overtakes_a_row_on_its_way_over_several_subtasks(seed: int, way: str) -> None:
    elements = in_time(make_elements(random.Random(seed)))
    wanted = diary(elements)
    for batch_rows in BATCHES:
        found = run([elements], SPREADING[way], batch_rows, 2)
        assert found.keys() == wanted.keys()
        for key, told in found.items():
            check_behind(told, wanted[key])


def check_behind(told: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> None:
    """All rows and timers of a key are there; no row met a later watermark, and no timer fewer rows, than one by one."""
    rows, wanted_rows = ([t for t in some if t[1] == "row"] for some in (told, wanted))
    assert sorted(r[2] for r in rows) == sorted(r[2] for r in wanted_rows)
    latest: dict[int, int] = {}
    for _, _, at, _, watermark in wanted_rows:
        latest[at] = max(latest.get(at, MIN_TIMESTAMP), watermark)
    for _, _, at, _, watermark in rows:
        assert watermark <= latest[at]
    first: dict[int, int] = {}
    for _, what, at, seen, _ in wanted:
        if what == "timer":
            first.setdefault(at, seen)
    timers = {(at, seen) for _, what, at, seen, _ in told if what == "timer"}
    assert {at for at, _ in timers} == first.keys()
    assert all(seen >= first[at] for at, seen in timers)


@pytest.mark.parametrize("seed", everyday(range(8), 8))
def test_no_watermark_of_a_union_is_ahead_of_one_of_its_inputs(seed: int) -> None:
    """Each input has keys of its own: what a key is told depends on the other input by nothing but its watermarks."""
    rng = random.Random(seed)
    parts = [in_time(make_elements(rng), suffix) for suffix in "xy"]
    wanted = diary(parts[0]) | diary(parts[1])
    for batch_rows in BATCHES:
        for parallelism in (1, 2):
            found = run(parts, EXACT["nothing"], batch_rows, parallelism)
            assert found.keys() == wanted.keys()
            for key, told in found.items():
                check_behind(told, wanted[key])
