"""What is promised of rows in a database, with checkpoints and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.plan.guarantees import batch_guarantees, plan_guarantees
from tests.spark.files import sql_plan

CHECKPOINTS = "SET 'execution.checkpointing.interval' = '1 s'; SET 'state.checkpoints.dir' = '/nowhere';"
RESTART = "SET 'restart-strategy.type' = 'fixed-delay';"
TABLES = """
CREATE TABLE a (id BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/d', 'table-name' = 'a');
CREATE TABLE b (id BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/d', 'table-name' = 'b'{guarantee});
INSERT INTO b SELECT id FROM a;
"""
EXACTLY = ", 'sink.delivery-guarantee' = 'exactly-once'"


@pytest.mark.parametrize(
    ("settings", "guarantee", "promised"),
    [
        (CHECKPOINTS, EXACTLY, "sink 'b': exactly once"),
        (
            CHECKPOINTS,
            "",
            "sink 'b': at least once — connector jdbc writes rows as they come, unless 'sink.delivery-guarantee' = 'exactly-once'",
        ),
        (
            RESTART,
            EXACTLY,
            "sink 'b': no guarantee — no checkpoints: a restart begins anew, and what was written before it stays",
        ),
        ("", EXACTLY, "sink 'b': at most once — no checkpoints: a job that fails cannot be resumed"),
    ],
)
def test_of_a_stream(tmp_path: Path, settings: str, guarantee: str, promised: str) -> None:
    plan = sql_plan(settings + TABLES.format(guarantee=guarantee), tmp_path)
    assert [str(g) for g in plan_guarantees(plan)] == [promised]


def test_of_a_batch(tmp_path: Path) -> None:
    plan = sql_plan(TABLES.format(guarantee=EXACTLY), tmp_path)
    assert [g.word for g in batch_guarantees(plan)] == ["at least once"]
