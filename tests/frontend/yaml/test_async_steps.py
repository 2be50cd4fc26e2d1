"""Asynchronous functions in steps: what is said becomes a node, runs, and what cannot be is reported where it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flowrun.errors import PipelineError
from flowrun.plan.explain import plan_text
from flowrun.plan.nodes import AsyncMap, AsyncRetries, walk_plan
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import run_embedded

ASKING = """
import asyncio

from flowrun.api.async_function import AsyncFunction


class Ask(AsyncFunction):
    def __init__(self, factor=2):
        self.factor = factor

    async def async_invoke(self, row, context):
        await asyncio.sleep(row["n"] % 3 / 1000)
        if row["n"] == 7:
            raise ValueError("seven")
        if row["n"] == 8 and context.attempt < 3:
            return None
        if row["n"] == 9:
            await asyncio.sleep(60)
        if row["n"] % 2 == 0:
            context.side_output("even", {"shown": str(row["n"])})
        return {"n": row["n"] * self.factor, "attempt": context.attempt}

    def timeout(self, row, context):
        return {"n": -row["n"], "attempt": context.attempt}


def nothing(result):
    return result is None


def never(error):
    return False
"""
PIPELINE = """
name: asking
settings: {on_error: dead-letter, dead_letters: "${DIR}/dead"}
sources: {numbers: {connector: filesystem, path: "${DIR}/in", format: json, schema: {n: BIGINT, k: STRING}}}
steps:
  asked:
    from: numbers
    select: [n]
    async: ASYNC
sinks:
  out: {from: asked, connector: filesystem, path: "${DIR}/out", format: json}
  even: {from: even, connector: filesystem, path: "${DIR}/even", format: json}
"""
WHOLE = (
    "{function: 'asking:Ask', with: {factor: 10}, schema: {n: BIGINT, attempt: BIGINT}, mode: unordered, capacity: 3, timeout: 500ms, "
    "retry: {attempts: 4, delay: 1ms, max_delay: 5ms, multiplier: 2, on_result: 'asking:nothing', on_exception: 'asking:never'}, "
    "side_outputs: {even: {shown: STRING}}}"
)


def compiled(folder: Path, declared: str = WHOLE, text: str = PIPELINE) -> Any:
    (folder / "asking.py").write_text(ASKING, encoding="utf-8")
    (folder / "in").mkdir(exist_ok=True)
    rows = [{"n": n, "k": "a"} for n in range(1, 12)]
    (folder / "in" / "rows.json").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    file = folder / "pipeline.yaml"
    file.write_text(text.replace("${DIR}", str(folder)).replace("ASYNC", declared), encoding="utf-8")
    return compile_pipeline(file)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def side_schemas(made: Any) -> dict[str, str]:
    """Columns by the tags of the job's edges."""
    edges = [edge for vertex in made.job_graph.vertices for edge in vertex.chain_edges]
    return {edge.tag.name: str(edge.tag.schema) for edge in edges if edge.tag is not None}


def test_a_step_asks_for_each_row(tmp_path: Path) -> None:
    made = compiled(tmp_path)
    (node,) = (n for n in walk_plan(made.plan) if isinstance(n, AsyncMap))
    assert not node.ordered
    assert (node.capacity, node.timeout_ms) == (3, 500)
    assert node.retry == AsyncRetries(4, 1, 2.0, 5, "asking:nothing", "asking:never")
    assert "mode: unordered" in plan_text(made.plan)
    assert side_schemas(made)["even"] == "shown STRING"
    run_embedded(made.job_graph)
    found = {row["n"]: row["attempt"] for row in rows_in(tmp_path / "out")}
    assert found == {**{10 * n: 1 for n in (1, 2, 3, 4, 5, 6, 10, 11)}, 80: 3, -9: 1}
    assert sorted(int(row["shown"]) for row in rows_in(tmp_path / "even")) == [2, 4, 6, 8, 10]
    (letter,) = rows_in(tmp_path / "dead")
    assert letter["text"] == '{"n":7}'
    assert "seven" in letter["reason"]


def test_the_short_form_keeps_columns_and_order(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(
        "import asyncio\nfrom flowrun.api.async_function import AsyncFunction\n\n"
        "class Same(AsyncFunction):\n    async def async_invoke(self, row, context):\n"
        "        await asyncio.sleep(row['n'] % 3 / 1000)\n        return row\n",
        encoding="utf-8",
    )
    text = PIPELINE[: PIPELINE.index("  even:")].replace("settings: {", "settings: {batch_rows: 2, ")
    run_embedded(compiled(tmp_path, "plain:Same", text).job_graph)
    assert [row["n"] for row in rows_in(tmp_path / "out")] == list(range(1, 12))


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ("asking:nothing", "is an object of type function, not an asynchronous function"),
        ("{function: 'asking:Ask', with: {faktor: 1}, schema: {n: BIGINT}}", "does not take these arguments"),
        ("{function: 'asking:Ask', capacity: 0}", "at least 1"),
        ("{function: 'asking:Ask', mode: sorted}", "ordered"),
        ("{function: 'asking:Ask', retry: {delay: 1s}}", "attempts"),
        (
            "{function: 'asking:Ask', retry: {attempts: 1, delay: 2s, max_delay: 1s}}",
            "'max_delay' is shorter than 'delay'",
        ),
        ("{function: 'asking:Ask', retry: {attempts: 1, on_result: 'asking:nothin'}}", "has no 'nothin'"),
    ],
)
def test_what_cannot_be_is_reported(tmp_path: Path, declared: str, problem: str) -> None:
    with pytest.raises(PipelineError) as raised:
        compiled(tmp_path, declared)
    assert problem in str(raised.value)


SPLIT = """
name: mapped
sources: {numbers: {connector: filesystem, path: "${DIR}/in", format: json, schema: {n: BIGINT, k: STRING}}}
steps:
  mapped:
    from: numbers
    select: [n]
    flat_map: {function: 'splitting:split', row: true, side_outputs: {great: {shown: STRING}}}
sinks:
  out: {from: mapped, connector: filesystem, path: "${DIR}/out", format: json}
  great: {from: great, connector: filesystem, path: "${DIR}/great", format: json}
"""


def test_functions_of_flat_map_send_to_side_outputs_by_their_context(tmp_path: Path) -> None:
    beside = tmp_path / "splitting.py"
    beside.write_text(
        "def split(row, context):\n    if row['n'] > 9:\n"
        "        context.side_output('great', {'shown': str(row['n'])})\n    else:\n        yield row\n",
        encoding="utf-8",
    )
    made = compiled(tmp_path, text=SPLIT)
    assert "side_outputs" in plan_text(made.plan)
    assert side_schemas(made) == {"great": "shown STRING"}
    run_embedded(made.job_graph)
    assert [row["n"] for row in rows_in(tmp_path / "out")] == list(range(1, 10))
    assert [row["shown"] for row in rows_in(tmp_path / "great")] == ["10", "11"]
    (tmp_path / "plain.py").write_text("def split(row):\n    return [row]\n", encoding="utf-8")
    with pytest.raises(PipelineError, match="no second parameter 'context'"):
        compiled(tmp_path, text=SPLIT.replace("splitting:", "plain:"))


def test_changes_do_not_leave_without_order(tmp_path: Path) -> None:
    text = PIPELINE.replace("    select: [n]\n", "").replace(
        "  asked:\n    from: numbers",
        "  counts: {from: numbers, key_by: [k], aggregate: ['COUNT(*) AS n']}\n  asked:\n    from: counts",
    )
    text = (
        text[: text.index("  even:")]
        .replace("format: json}\n", "format: debezium-json}\n")
        .replace("format: debezium-json, schema", "format: json, schema")
    )
    with pytest.raises(PipelineError, match="cannot leave without order"):
        compiled(tmp_path, "{function: 'asking:Ask', mode: unordered}", text)
