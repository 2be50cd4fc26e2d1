"""INSERT INTO … ON CONFLICT DO ERROR and DO NOTHING, from script to files: which rows stay, and what is said of those that may not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from flowrun.errors import DataError, JobFailedError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.end_to_end.conftest import Command
from tests.end_to_end.running import json_rows, written_files
from tests.slices import everyday

TABLES = """
CREATE TABLE bought (item STRING, who STRING, at TIMESTAMP(3){more}) WITH ('connector'='filesystem', 'path'='bought',
  'format'='debezium-json'{options});
CREATE TABLE result (item STRING, who STRING, PRIMARY KEY (item) NOT ENFORCED)
  WITH ('connector'='filesystem', 'path'='out', 'format'='debezium-json');
"""
BOUGHT = "INSERT INTO result SELECT item, who FROM bought ON CONFLICT DO {action};"
WATERMARK = ", WATERMARK FOR at AS at"
ON_EVENT = ", 'scan.watermark.emit.strategy'='on-event'"
RUNS = pytest.mark.parametrize(("parallelism", "batch_rows"), [(1, 1), (2, 1), (1, 7), (2, 7), (2, 1000)])
Change = tuple[str, str, str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(*changes: str, name: str = "0") -> None:
    """`+phone ann 3`: the row comes, at that second; `-phone ann 3`: it goes."""
    lines = []
    for change in changes:
        item, who, *second = change[1:].split()
        at = f"2024-01-01 00:00:{int(*second) if second else 0:02}"
        row = {"item": item, "who": who, "at": at}
        came = change[0] == "+"
        lines.append(
            json.dumps({"op": "c" if came else "d", "before": None if came else row, "after": row if came else None})
        )
    Path("bought").mkdir(exist_ok=True)
    Path(f"bought/{name}.json").write_text("".join(line + "\n" for line in lines))


def run(text: str, *, more: str = "", options: str = "", **settings: object) -> None:
    Path("script.sql").write_text(TABLES.format(more=more, options=options) + text)
    run_embedded(
        compile_pipeline(Path("script.sql"), {}, {f"settings.{k}": str(v) for k, v in settings.items()}).job_graph
    )


def result() -> list[tuple[Any, ...]]:
    """The rows that the written changes come to."""
    held: list[tuple[Any, ...]] = []
    for change in json_rows(Path("out")):
        row = change["after"] or change["before"]
        assert isinstance(row, dict)
        (held.append if change["after"] else held.remove)(tuple(row.values()))
    return sorted(held)


@RUNS
def test_of_rows_that_give_way_to_each_other_the_last_one_stays(parallelism: int, batch_rows: int) -> None:
    write(
        "+phone ann",
        "+phone bob",
        "+desk cid",
        "-phone ann",
        "+phone bob",
        "-desk cid",
        "+lamp dan",
        "+lamp eve",
        "-lamp dan",
    )
    run(BOUGHT.format(action="ERROR"), parallelism=parallelism, batch_rows=batch_rows)
    assert result() == [("lamp", "eve"), ("phone", "bob")]


@RUNS
def test_rows_that_stay_in_conflict_fail_the_job_and_are_named(parallelism: int, batch_rows: int) -> None:
    write("+desk cid", "+phone ann", "+phone bob", "+phone cid", "-phone ann")
    with pytest.raises(JobFailedError) as failure:
        run(BOUGHT.format(action="ERROR"), parallelism=parallelism, batch_rows=batch_rows)
    cause = failure.value.__cause__
    assert isinstance(cause, DataError)
    assert "sink 'result': the query has 2 different rows for the primary key {item: 'phone'}" in cause.message
    assert "{item: 'phone', who: 'bob'}, {item: 'phone', who: 'cid'}" in cause.message
    assert "DO NOTHING" in (cause.hint or "")
    assert written_files(Path("out")) == []


@RUNS
def test_the_first_of_rows_that_change_stays(parallelism: int, batch_rows: int) -> None:
    write(
        "+phone ann",
        "+phone bob",
        "+phone cid",
        "-phone bob",
        "+desk ann",
        "+desk bob",
        "-desk ann",
        "+lamp eve",
        "-lamp eve",
        "-lamp fay",
    )
    run(BOUGHT.format(action="NOTHING"), parallelism=parallelism, batch_rows=batch_rows)
    assert result() == [("desk", "bob"), ("phone", "ann")]


@RUNS
def test_counts_that_pass_each_other_are_in_no_conflict(parallelism: int, batch_rows: int) -> None:
    write(*(f"+{item} ann" for item in ("a", "b", "c", "b", "c", "a", "c", "a", "d", "a")))
    query = "INSERT INTO result SELECT CAST(COUNT(*) AS STRING), item FROM bought GROUP BY item ON CONFLICT DO ERROR;"
    run(query, parallelism=parallelism, batch_rows=batch_rows)
    assert result() == [("1", "d"), ("2", "b"), ("3", "c"), ("4", "a")]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_what_stands_when_the_watermark_advances_counts(parallelism: int) -> None:
    write("+phone ann 1", "+phone bob 2", "+desk ann 30", "-phone ann 31", "+lamp ann 50")
    with pytest.raises(JobFailedError, match="2 different rows for the primary key"):
        run(BOUGHT.format(action="ERROR"), more=WATERMARK, options=ON_EVENT, parallelism=parallelism, batch_rows=1)
    run(BOUGHT.format(action="ERROR"), parallelism=parallelism, batch_rows=1)
    assert result() == [("desk", "ann"), ("lamp", "ann"), ("phone", "bob")]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_kept_row_stays_while_others_come_and_go_and_goes_for_good(parallelism: int) -> None:
    write(
        "+phone ann 1",
        "+desk ann 10",
        "+phone bob 11",
        "+desk bob 20",
        "-phone bob 21",
        "+lamp ann 30",
        "-desk ann 31",
        "+lamp bob 40",
    )
    run(BOUGHT.format(action="NOTHING"), more=WATERMARK, options=ON_EVENT, parallelism=parallelism, batch_rows=1)
    assert result() == [("lamp", "ann"), ("phone", "ann")], "the other desk had been dropped"


SWAPS = """
CREATE TABLE swaps (one STRING, ones STRING, other STRING, others STRING, at TIMESTAMP(3), WATERMARK FOR at AS at)
  WITH ('connector'='filesystem', 'path'='swaps.json', 'format'='json', 'scan.watermark.emit.strategy'='on-event');
INSERT INTO result SELECT LAST_VALUE(item), who
FROM swaps CROSS JOIN UNNEST(ARRAY[ROW(one, others), ROW(other, ones)]) AS t (who, item) GROUP BY who ON CONFLICT DO {action};
"""


@pytest.mark.parametrize(
    ("parallelism", "batch_rows", "action"),
    everyday([(*layout, action) for layout in [(1, 1), (2, 1), (3, 1), (3, 3)] for action in ["ERROR", "NOTHING"]], 3),
)
def test_what_two_subtasks_send_of_one_row_is_compared_together(parallelism: int, batch_rows: int, action: str) -> None:
    dice, people = random.Random(parallelism), [f"p{i}" for i in range(12)]
    held = {who: f"i{number}" for number, who in enumerate(people)}
    pairs = list(zip(people[::2], people[1::2], strict=True))
    pairs += [tuple(dice.sample(people, 2)) for _ in range(300)]  # type: ignore[misc]
    lines = []
    for second, (one, other) in enumerate(pairs):
        at = f"2024-01-01 00:{second // 60:02}:{second % 60:02}"
        lines.append({"one": one, "ones": held[one], "other": other, "others": held[other], "at": at})
        held[one], held[other] = held[other], held[one]
    Path("swaps.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run(SWAPS.format(action=action), parallelism=parallelism, batch_rows=batch_rows)
    assert result() == sorted((item, who) for who, item in held.items())


def test_a_conflict_ends_a_job_with_checkpoints_too(flowrun: Command) -> None:
    write("+desk cid", "+phone ann", "+phone bob")
    settings = "SET 'execution.checkpointing.interval' = '1 s';\nSET 'execution.checkpointing.dir' = 'state';\n"
    restart = "SET 'restart-strategy.type' = 'fixed-delay';\nSET 'restart-strategy.fixed-delay.delay' = '10 ms';\n"
    Path("script.sql").write_text(
        settings + restart + TABLES.format(more="", options="") + BOUGHT.format(action="ERROR")
    )
    ended = flowrun("run", "script.sql")
    assert ended.code == 1
    assert "2 different rows for the primary key {item: 'phone'}" in ended.err
    assert written_files(Path("out")) == []


def test_an_endless_source_without_watermark_is_an_error_before_the_run(flowrun: Command) -> None:
    endless = "CREATE TABLE e (item STRING, who STRING) WITH ('connector'='datagen');\n"
    text = TABLES.format(more="", options="") + endless + "INSERT INTO result SELECT * FROM e ON CONFLICT DO ERROR;"
    Path("script.sql").write_text(text)
    ended = flowrun("validate", "script.sql")
    assert ended.code == 2
    assert "script.sql:7:13: error: ON CONFLICT DO ERROR of 'result' compares rows" in ended.err
    assert "hint: declare WATERMARK FOR … on 'e'" in ended.err
