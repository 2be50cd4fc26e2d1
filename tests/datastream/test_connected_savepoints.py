"""Functions of several streams are stopped with a savepoint, and go on from it at another parallelism."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flowrun.api.broadcast_function import KeyedBroadcastProcessFunction, broadcast_state
from flowrun.api.co_process_function import KeyedCoProcessFunction
from flowrun.api.process_function import reducing_state
from flowrun.cli.state.group import state
from flowrun.connectors import memory
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.datastream import StreamExecutionEnvironment
from flowrun.errors import StateError
from flowrun.runners.embedded import start_embedded
from flowrun.runtime.jobmaster.job_state import JobStateOptions
from flowrun.testing import rows_of
from tests.datastream.test_input_selection import SEEN, Recipe

NUMBERS = Schema.of(n=BIGINT)
SUMS = Schema.of(k=BIGINT, first=BIGINT, second=BIGINT)
ROWS, FAR = 1500, 10**13


class Sums(KeyedCoProcessFunction):
    """At the end, the sums of both inputs."""

    first = reducing_state("sum", "BIGINT")
    second = reducing_state("sum", "BIGINT")

    def process_element1(self, row: Any, context: Any) -> None:
        self.first.add(row["n"])
        context.register_processing_time_timer(FAR)

    def process_element2(self, row: Any, context: Any) -> None:
        self.second.add(row["n"])

    def on_timer(self, timestamp: int, context: Any) -> Any:
        yield {"k": context.current_key[0], "first": self.first.get(), "second": self.second.get()}


class Seen(KeyedBroadcastProcessFunction):
    """At the end, each number, how many rules there were, and their sum."""

    rules = broadcast_state("BIGINT", "BIGINT")
    sums = reducing_state("sum", "BIGINT")

    def process_element(self, row: Any, context: Any) -> None:
        self.sums.add(row["n"])
        context.register_processing_time_timer(FAR)

    def process_broadcast_element(self, row: Any, context: Any) -> None:
        self.rules.put(row["n"] % 10, row["n"] + (self.rules.get(row["n"] % 10) or 0))

    def on_timer(self, timestamp: int, context: Any) -> Any:
        yield {"k": context.current_key[0], "first": len(self.rules), "second": sum(v for _, v in self.rules.items())}


def program(parallelism: int) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment("both", parallelism=parallelism)
    options = {
        "number-of-rows": ROWS,
        "rows-per-second": ROWS,
        "fields.n.kind": "sequence",
        "fields.n.start": 1,
        "fields.n.end": ROWS,
    }
    one, two = (
        env.from_connector("datagen", NUMBERS, options, name=name).uid(name).set_parallelism(1)
        for name in ("one", "two")
    )
    both = one.connect(two).key_by("n", "n").process(Sums(), SUMS, name="sums").uid("sums")
    both.sink_to(memory.MemorySink("sums", SUMS), name="sums").uid("to sums")
    seen = one.key_by("n").connect(two.broadcast("rules")).process(Seen, SUMS, name="seen").uid("seen")
    seen.sink_to(memory.MemorySink("seen", SUMS), name="seen").uid("to seen")
    return env


def taken(table: str) -> Counter[tuple[Any, ...]]:
    return Counter(row for batch in memory.take(table) for row in rows_of(batch.columns))


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_a_job_goes_on_at_another_parallelism(tmp_path: Path, before: int, after: int) -> None:
    memory.clear()
    job = start_embedded(program(before).job_graph(), state=JobStateOptions(str(tmp_path)))
    while not any(v.records_in > 100 for v in job.status().vertices if "seen" in v.name):
        assert job.wait(20) is None, "it is over before it could be stopped"
    path = job.take_snapshot(str(tmp_path / "savepoints"), stop=True).wait(20_000)
    job.wait()
    shown = CliRunner().invoke(state, ["show", path])
    assert shown.exit_code == 0, shown.output
    assert "rules" in shown.output
    memory.clear()
    job = start_embedded(program(after).job_graph(), state=JobStateOptions(str(tmp_path / "again"), restore_from=path))
    assert job.wait(60_000) is not None
    assert taken("sums") == Counter((n, n, n) for n in range(1, ROWS + 1))
    whole = sum(range(1, ROWS + 1))
    assert taken("seen") == Counter((n, 10, whole) for n in range(1, ROWS + 1))


def test_a_job_that_selects_its_inputs_declines_savepoints(tmp_path: Path) -> None:
    memory.clear()
    env = StreamExecutionEnvironment("turns", parallelism=1)
    options = {"rows-per-second": 1000}
    one, two = (env.from_connector("datagen", NUMBERS, options, name=name) for name in ("one", "two"))
    one.connect(two).process(Recipe("InTurns", ((0, 1),)), SEEN).sink_to(memory.MemorySink("out", SEEN))
    job = start_embedded(env.job_graph(), state=JobStateOptions(str(tmp_path)))
    with pytest.raises(StateError, match=r"selects its inputs .InputSelectable., which cannot be part of a checkpoint"):
        job.take_snapshot(str(tmp_path / "savepoints")).wait(20_000)
    job.cancel()
    job.wait()
