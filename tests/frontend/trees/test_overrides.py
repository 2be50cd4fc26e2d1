"""`--set path=value`: what it can reach, and what it says when it cannot."""

from __future__ import annotations

import pytest

from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.nodes import YamlMapping, YamlNode, YamlScalar, YamlSequence
from flowrun.frontend.trees.overrides import apply_overrides
from flowrun.frontend.trees.reader import read_yaml

DOCUMENT = """
settings: {parallelism: 2}
sources:
  orders: {connector: filesystem, source.monitor-interval: 5s}
steps:
  all: {union: [a, b]}
empty:
"""


def plain(node: YamlNode | None) -> object:
    match node:
        case YamlMapping():
            return {e.name: plain(e.value) for e in node.entries}
        case YamlSequence():
            return [plain(i) for i in node.items]
        case YamlScalar():
            return node.text
    return None


def override(*assignments: str) -> tuple[dict[str, object], Diagnostics]:
    source = SourceText("p.yaml", DOCUMENT)
    diagnostics = Diagnostics(source)
    tree = read_yaml(source, diagnostics)
    assert tree is not None
    changed = plain(apply_overrides(tree, assignments, diagnostics))
    assert isinstance(changed, dict)
    return changed, diagnostics


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("settings.parallelism=4", ["settings", "parallelism"], "4"),
        ("settings.batch_rows = 7", ["settings", "batch_rows"], "7"),
        ("sources.orders.source.monitor-interval=1s", ["sources", "orders", "source.monitor-interval"], "1s"),
        ("sources.orders.fields.id.kind=sequence", ["sources", "orders", "fields"], {"id": {"kind": "sequence"}}),
        ("steps.all.union=[c, d]", ["steps", "all", "union"], ["c", "d"]),
        ("steps.all.union.1=d", ["steps", "all", "union"], ["a", "d"]),
        ("empty.x=1", ["empty", "x"], "1"),
        ("sources.orders.path=a=b", ["sources", "orders", "path"], "a=b"),
        ("name=", ["name"], ""),
    ],
)
def test_values_are_replaced_or_added(assignment: str, path: list[str], value: object) -> None:
    found: object
    found, diagnostics = override(assignment)
    assert not diagnostics.found
    for key in path:
        assert isinstance(found, dict)
        found = found[key]
    assert found == value


def test_later_overrides_win() -> None:
    changed, _ = override("settings.parallelism=4", "settings.parallelism=8")
    assert changed["settings"] == {"parallelism": "8"}


@pytest.mark.parametrize(
    ("assignment", "message", "column"),
    [
        ("parallelism", "'parallelism' is not of the form path=value", 1),
        ("a..b=1", "is not of the form path=value", 1),
        ("settings.parallelism.x=1", "goes through '2', which has no keys", 1),
        ("steps.all.union.7=x", "'7' in 'steps.all.union.7' is no position of this list", 1),
        ("name=[1, 2", "this '[' is never closed", 6),
    ],
)
def test_what_cannot_be_set_is_reported_in_the_override(assignment: str, message: str, column: int) -> None:
    unchanged, diagnostics = override(assignment)
    (problem,) = diagnostics.found
    assert message in problem.message
    assert problem.location is not None
    assert (problem.location.file, problem.location.column) == ("--set", column)
    assert problem.source_line == assignment
    assert unchanged == override()[0]


def test_options_of_a_format_are_put_beside_it() -> None:
    source = {"connector": "filesystem", "format": "json"}
    changed, diagnostics = override(
        "sources.files.connector=filesystem", "sources.files.format=json", "sources.files.format.on-error=skip"
    )
    assert not diagnostics.found
    assert isinstance(changed["sources"], dict)
    assert changed["sources"]["files"] == {**source, "format.on-error": "skip"}
