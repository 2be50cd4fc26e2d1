"""`select` gives the columns that it names, each by the name that users expect, and says of each entry what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.frontend.pipeline import load_text
from flowrun.frontend.source_text import SourceText
from flowrun.plan.nodes import Calc, Scan

HEAD = """
sources:
  orders:
    connector: datagen
    schema: {a: INT NOT NULL, b: BIGINT, s: STRING, device: "ROW<os STRING, version INT>"}
sinks:
  out: {from: s, connector: blackhole}
steps:
"""


def selected(*entries: str, condition: str = "") -> Calc:
    listed = ", ".join(f'"{e}"' for e in entries)
    where = f", filter: {condition}" if condition else ""
    text = f"{HEAD}  s: {{from: orders, select: [{listed}]{where}}}\n"
    node = load_text(SourceText("p.yaml", text), Path(), {}, {}).plan.sinks[0].input
    assert isinstance(node, Calc)
    return node


def test_columns_have_the_names_that_they_are_given_or_have() -> None:
    assert selected("*", "device.version", "a + 1 AS next", "s AS `the text`").schema.names == (
        "a", "b", "s", "device", "version", "next", "the text",
    )  # fmt: skip
    assert selected("device.*", "*").schema.names == ("os", "version", "a", "b", "s", "device")
    assert selected("(a)", "CAST(b AS BIGINT)", "orders.s").schema.names == ("a", "b", "s")


def test_what_is_computed_may_be_null_and_columns_stay_as_they_are() -> None:
    assert str(selected("a", "a + 1 AS next", "1 AS one").schema) == "a INT NOT NULL, next INT, one INT"


@pytest.mark.parametrize("condition", ["", "a > 5 AND s IS NOT NULL"])
def test_rows_are_filtered_and_projected_in_one_pass(condition: str) -> None:
    node = selected("*", condition=condition)
    assert isinstance(node.input, Scan)
    assert str(node.condition) == ("((a > 5) AND IS NOT NULL(s))" if condition else "None")
    assert (node.hints.name, node.hints.stable_id) == ("s", "steps.s")


@pytest.mark.parametrize(
    ("entries", "message", "column"),
    [
        (("a", "b + 1"), "the column needs a name", 36),
        (("a", "b AS a"), "column 'a' is selected twice", 35),
        (("*", "a"), "column 'a' is selected twice", 35),
        (("a", "*"), "column 'a' is selected twice", 35),
        (("a AS os", "device.*"), "column 'os' is selected twice", 41),
        (("a", "bb"), "column 'bb' does not exist", 36),
        (("NULL AS x",), "NULL alone has no type", 30),
        (("a AS x, b",), "an entry is one column, this gives 2", 30),
        (("s.*",), "only a table or a ROW has columns to list", 31),
    ],
)
def test_a_wrong_entry_of_a_list_is_marked(entries: tuple[str, ...], message: str, column: int) -> None:
    with pytest.raises(PipelineError) as caught:
        selected(*entries)
    (problem,) = caught.value.diagnostics
    assert message in problem.message
    assert problem.location is not None
    assert problem.location.column == column
