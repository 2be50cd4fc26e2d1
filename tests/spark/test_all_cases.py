"""Every case of the project on Spark, with shuffled sources: it must end with the rows that the stream ends with."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.shared_suites import needs_shared
from tests.slices import everyday, in_ci
from tests.spark.shuffled import run_on_spark, shuffled  # noqa: F401 - a fixture
from tests.sql.test_cases import CASES as OWN
from tests.sql.test_cases import HERE, folded, plain
from tests.sql.test_flink_cases import CASES as SUITE
from tests.sql.test_flink_cases import EXPECTED, ROOT, SHARED, check_nexmark, fold_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

YAML = sorted((Path(__file__).parents[1] / "cases").glob("*.yaml"))

pytestmark = pytest.mark.everyday


@pytest.mark.usefixtures("shuffled")
@pytest.mark.exhaustive
@pytest.mark.parametrize("case", in_ci(OWN, 8), ids=lambda p: p.stem)
def test_our_scripts(case: Path, spark: SparkSession, tmp_path: Path) -> None:
    variables = {"OUT": str(tmp_path)}
    if "${DATA}" in case.read_text():
        variables["DATA"] = str(HERE / "data")
    run_on_spark(spark, case, variables)
    expected = json.loads(case.with_suffix(".json").read_text())
    # an aggregate over nothing is a row of a batch, not of a stream
    wanted = expected.get("batch_rows", expected["rows"])
    assert folded(tmp_path, expected["columns"]) == Counter(json.dumps(plain(row)) for row in wanted)


@pytest.mark.usefixtures("shuffled")
@needs_shared(SUITE)
@pytest.mark.parametrize("case", everyday([*SUITE, *YAML], 80, ci=3), ids=lambda p: p.name)
def test_the_shared_suite(case: Path, spark: SparkSession, tmp_path: Path) -> None:
    recorded = SHARED / "sqlsuite" / "cases" / f"{case.stem}.json"
    wanted: dict[str, Any] = json.loads(recorded.read_text())
    run_on_spark(spark, case, {"DATA": str(SHARED / "sqlsuite" / "data"), "OUT": str(tmp_path)})
    said = fold_text(tmp_path, wanted["columns"], recorded)
    assert said.startswith("same"), said


@pytest.mark.usefixtures("shuffled")
@pytest.mark.parametrize("expected", everyday(EXPECTED, 21, ci=4), ids=lambda p: p.stem)
def test_nexmark(expected: Path, spark: SparkSession, tmp_path: Path) -> None:
    events = SHARED / "nexmark" / "events.json"
    sides = SHARED / "nexmark" / "side_input.csv"
    variables = {"EVENTS": str(events), "SIDE_INPUT": str(sides), "FORMAT": "json", "OUT": str(tmp_path)}
    run_on_spark(spark, ROOT / "pipelines" / "nexmark" / f"{expected.stem}.sql", variables)
    check_nexmark(expected, tmp_path)
