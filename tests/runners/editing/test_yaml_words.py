"""What may come next in a YAML pipeline, and what a word in it is. A bar marks the cursor."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.runners.editing.analysis import Analysis, analyse
from flowrun.runners.editing.meaning import about, declared_at
from flowrun.runners.editing.yaml_words import place_of, yaml_proposals

PIPELINE = """\
name: orders
sources:
  orders:
    connector: datagen
    number-of-rows: 10
    schema: {order_id: BIGINT, amount: DOUBLE}
steps:
  large: {from: orders, filter: amount > 5}
  totals:
    from: large
    key_by: [order_id]
    window: {type: count, size: 3}
    aggregate:
      - SUM(amount) AS total
  joined:
    sql: |
      SELECT order_id
      FROM large
      WHERE amount > 7
sinks:
  out: {from: totals, connector: blackhole}
  more: {from: joined, connector: blackhole}
"""
PATH = Path("orders.yaml")


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    found = analyse(PATH, PIPELINE)
    assert found.is_right, found.problems
    return found


def cursor(old: str, new: str) -> tuple[str, int, int]:
    """The pipeline with `new` in the place of `old`, and where the bar in it is."""
    assert old in PIPELINE
    text = PIPELINE.replace(old, new, 1)
    before = text[: text.index("|>")]
    return text.replace("|>", "", 1), before.count("\n"), len(before) - before.rfind("\n") - 1


@pytest.mark.parametrize(
    ("old", "new", "some", "none"),
    [
        ("    number-of-rows: 10\n", "    num|>\n", ["number-of-rows: "], ["filter: "]),
        ("    connector: datagen", "    connector: da|>", ["datagen"], ["kafka"]),
        ("    from: large\n", "    from: |>\n", ["orders", "large"], []),
        ("    key_by: [order_id]", "    key_by: [|>]", ["order_id", "amount"], ["COUNT("]),
        ("SUM(amount)", "SUM(am|>)", ["amount"], ["order_id"]),
        ("      - SUM(", "      - SU|>(", ["SUM(", "SUBSTRING("], []),
        ("type: count", "type: |>", ["tumbling", "session", "count"], ["orders"]),
        ("{type: count, size: 3}", "{type: tumbling, |>}", ["size: "], ["gap: "]),
        ("filter: amount", "filter: am|>", ["amount"], ["order_id"]),
        ("      FROM large\n", "      FROM |>\n", ["orders", "large"], []),
        ("      SELECT order_id\n", "      SELECT am|>\n", ["amount"], []),
        ("  joined:\n", "  joined:\n    fi|>\n", ["filter: "], ["connector: "]),
        ("    schema: {", "    metadata: {at: |>}\n    schema: {", [], ["timestamp", "offset"]),
        (
            "    connector: datagen\n",
            "    connector: kafka\n    metadata:\n      at: |>\n",
            ["timestamp", "offset", "headers"],
            ["file.path"],
        ),
        (
            "    connector: datagen\n",
            "    connector: filesystem\n    metadata: {at: fi|>}\n",
            ["file.path", "file.name"],
            ["timestamp"],
        ),
        (
            "  out: {from: totals, connector: blackhole}\n",
            "  out:\n    from: totals\n    connector: kafka\n    metadata:\n      total: |>\n",
            ["timestamp", "headers"],
            ["offset", "partition"],
        ),
        ("name: orders\n", "name: orders\nset|>\n", ["settings: "], ["sources: "]),
    ],
)
def test_what_may_come_next(old: str, new: str, some: list[str], none: list[str], analysis: Analysis) -> None:
    found = [p.text for p in yaml_proposals(place_of(*cursor(old, new)), analysis.tables)]
    assert set(some) <= set(found), found
    assert not set(none) & set(found)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    number-of-rows", "    number|>-of-rows", "**number-of-rows** (integer): "),
        ("connector: datagen", "connector: data|>gen", ""),
        ("    from: large", "    fr|>om: large", "The input."),
        ("    from: large", "    from: la|>rge", "**large**"),
        ("SUM(amount)", "S|>UM(amount)", "SUM(value)"),
        ("SUM(amount)", "SUM(amo|>unt)", "amount DOUBLE"),
        ("      SELECT order_id", "      SELECT order|>_id", "order_id BIGINT"),
    ],
)
def test_what_a_word_is(old: str, new: str, said: str, analysis: Analysis) -> None:
    text, line, column = cursor(old, new)
    found = about(PATH, text, line, column, analysis)
    assert found is not None
    assert said in found


def test_where_a_step_was_declared(analysis: Analysis) -> None:
    place = declared_at(PATH, *cursor("    from: large", "    from: la|>rge"), analysis)
    assert place is not None
    assert PIPELINE.split("\n")[place.line - 1].startswith("  large:")
    assert declared_at(PATH, *cursor("size: 3", "si|>ze: 3"), analysis) is None


def test_every_place_of_every_example_gives_words_or_none() -> None:
    """Whatever the cursor is in, nothing fails."""
    for path in sorted(Path("pipelines").glob("*.yaml")):
        text = path.read_text()
        found = analyse(path, text)
        for number, line in enumerate(text.split("\n")):
            for column in range(0, len(line) + 1, 3):
                list(yaml_proposals(place_of(text, number, column), found.tables))
                about(path, text, number, column, found)


def test_variables_are_left_open() -> None:
    text = PIPELINE.replace("number-of-rows: 10", "number-of-rows: ${ROWS}").replace("amount > 5", "amont > 5")
    [problem] = analyse(PATH, text).problems
    assert "amont" in problem.message
