"""Sinks that keep rows by key: how many tasks they may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.lowering import lower
from tests.frontend.sql.script.scripts import GENERATED, plan_of


@pytest.mark.parametrize(("buckets", "said"), [(1, "its 1 bucket\n"), (2, "its 2 buckets\n")])
def test_a_sink_has_no_more_tasks_than_buckets(tmp_path: Path, buckets: int, said: str) -> None:
    script = f"""CREATE TABLE s (id BIGINT, n BIGINT) {GENERATED};
CREATE TABLE o (id BIGINT, n BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}',
  'format' = 'json', 'sink.upsert.buckets' = '{buckets}', 'sink.parallelism' = '3');
INSERT INTO o SELECT id, COUNT(*) FROM s GROUP BY id"""
    with pytest.raises(PipelineError) as caught:
        lower(plan_of(script))
    assert f"parallelism 3 is more than {said}" in str(caught.value)
