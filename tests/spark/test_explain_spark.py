"""`flowrun explain --stage spark`: what is native, what is hosted and why, and Spark's plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spark.test_run_batch import flowrun

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1, "amount": 2.5}\n')
    (tmp_path / "p.yaml").write_text(
        "sources:\n"
        "  orders: {connector: filesystem, path: in, format: json, schema: {id: BIGINT, amount: DOUBLE}}\n"
        "steps:\n"
        "  big: {from: orders, filter: amount > 10}\n"
        "  checked: {from: big, map: 'functions:same'}\n"
        "sinks:\n"
        "  out: {from: checked, connector: blackhole}\n"
    )
    (tmp_path / "functions.py").write_text("def same(batch):\n    return batch\n")
    return tmp_path


def test_each_step_is_native_or_says_why_not(script: Path) -> None:
    text = flowrun("explain", "p.yaml", "--stage", "spark", "--verbose").stdout
    steps = [line.split("  ", 1)[1].strip() for line in text.partition("\n\n")[0].splitlines()]
    assert steps[0] == "native"
    assert "hosted: a Python function" in steps
    assert "Spark's plan of sink 'out':\n== Physical Plan ==" in text
    assert "MapInArrow" in text


def test_programs_get_the_same_as_json_and_mermaid(script: Path) -> None:
    assert "Physical Plan" not in flowrun("explain", "p.yaml", "--stage", "spark").stdout, "that is for --verbose"
    shown = json.loads(flowrun("explain", "p.yaml", "--stage", "spark", "--format", "json").stdout)
    assert {n["kind"]: (n["execution"], n["reason"]) for n in shown["nodes"]} == {
        "Scan": ("native", None),
        "Calc": ("native", None),
        "PythonMap": ("hosted", "a Python function"),
        "Sink": ("native", None),
    }
    assert [s["name"] for s in shown["sinks"]] == ["out"]
    chart = flowrun("explain", "p.yaml", "--stage", "spark", "--format", "mermaid").stdout
    assert 'PythonMap checked<br/>hosted: a Python function"]:::hosted' in chart
    assert "n1 --> n2" in chart


def test_files_need_not_be_there(script: Path) -> None:
    (script / "in" / "a.json").unlink()
    (script / "in").rmdir()
    pipeline = script / "p.yaml"
    pipeline.write_text(
        pipeline.read_text()
        .replace(
            "steps:\n",
            "  more: {connector: filesystem, path: 'some/*.parquet', format: parquet, schema: {id: BIGINT, amount: DOUBLE}}\n"
            "  parts: {connector: filesystem, path: parts, format: csv, schema: {id: BIGINT, amount: DOUBLE}, partition_by: [id]}\n"
            "steps:\n  all: {union: [orders, more, parts]}\n",
        )
        .replace("from: orders", "from: all")
    )
    ran = flowrun("explain", "p.yaml", "--stage", "spark", "--verbose")
    assert ran.exit_code == 0, ran.output
    assert "Scan text" in ran.stdout, "of the folder of JSON"
    assert "Scan parquet" in ran.stdout
    warned = [line for line in ran.stderr.splitlines() if line.startswith("warning: ")]
    assert [line.split("'")[1] for line in warned] == ["in", "some/*.parquet", "parts"]
    assert "Scan orders" in flowrun("explain", "p.yaml", "--stage", "plan").stdout
    refused = flowrun("run", "p.yaml", "--mode", "batch")
    assert refused.exit_code == 2, "a run needs them"
