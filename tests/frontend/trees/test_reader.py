"""Reading YAML: exact places whatever the quoting, and clear errors for what is not a pipeline document."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.nodes import YamlMapping, YamlNode, YamlScalar, scalars
from flowrun.frontend.trees.reader import MAX_DEPTH, read_yaml


def read(text: str) -> tuple[YamlNode | None, Diagnostics]:
    source = SourceText("p.yaml", text)
    diagnostics = Diagnostics(source)
    return read_yaml(source, diagnostics), diagnostics


def place_of(text: str, key: str, part: str) -> str:
    """line:column of `part` inside the value of `key`."""
    node, diagnostics = read(text)
    assert not diagnostics.found
    assert isinstance(node, YamlMapping)
    scalar = node.get(key)
    assert isinstance(scalar, YamlScalar)
    at = scalar.locate(scalar.text.index(part), len(part))
    assert at.length == len(part)
    return f"{at.line}:{at.column}"


@pytest.mark.parametrize(
    ("text", "part", "place"),
    [
        ("x: amount > 5", "> 5", "1:11"),
        ("x: 'it''s > 5'", "> 5", "1:11"),
        ('x: "a\\tb > 5"', "> 5", "1:10"),
        ('x: "\\u00e9\\x41 > 5"', "> 5", "1:16"),
        ("x: |\n  one\n  two > 5\n", "> 5", "3:7"),
        ("x: >-\n  one\n    two > 5\n\n  three\n", "> 5", "3:9"),
        ("x: one\n   two > 5", "> 5", "2:8"),
        ('x: "one\n   two \\\n   three > 5"', "> 5", "3:10"),
        ("x: | # the header may have a comment\n    a > 5\n", "> 5", "2:7"),
    ],
)
def test_places_inside_scalars_are_exact_whatever_the_quoting(text: str, part: str, place: str) -> None:
    assert place_of(text, "x", part) == place


@given(st.lists(st.text(alphabet="ab'\"\\ é{}:#", min_size=1), min_size=1, max_size=4))
def test_every_visible_character_of_a_quoted_scalar_is_found_again(words: list[str]) -> None:
    value = " ".join(words)
    for quoted in ("'" + value.replace("'", "''") + "'", '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'):
        node, diagnostics = read(f"key: {quoted}")
        assert not diagnostics.found
        (scalar,) = scalars(node)  # type: ignore[arg-type]
        assert scalar.text == value
        for offset, character in enumerate(value):
            if character in " '\"\\":
                continue
            at = scalar.locate(offset)
            assert f"key: {quoted}"[at.column - 1] == character


def test_scalars_keep_their_text_instead_of_becoming_yaml_1_1_values() -> None:
    node, _ = read("a: on\nb: 1:30\nc: 2024-03-01\nd: 0o17\ne: yes")
    assert [s.text for s in scalars(node)] == ["on", "1:30", "2024-03-01", "0o17", "yes"]  # type: ignore[arg-type]


def test_anchors_and_merge_keys_share_what_they_name() -> None:
    node, diagnostics = read("base: &b {x: 1, y: 2}\nmore:\n  <<: *b\n  y: 3\n  z: 4")
    assert not diagnostics.found
    assert isinstance(node, YamlMapping)
    more = node.get("more")
    assert isinstance(more, YamlMapping)
    assert {e.name: e.value.text for e in more.entries if isinstance(e.value, YamlScalar)} == {
        "x": "1",
        "y": "3",
        "z": "4",
    }


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("a: 1\nb: 2\na: 3", "3:1", "the key 'a' occurs twice in this mapping, first in line 1", "remove one"),
        ("a:\n\tb: 1", "2:1", "found character '\\t' that cannot start any token", "spaces, not tabs"),
        ("a: @b", "1:4", "found character '@' that cannot start any token", "quote values"),
        ("a: b: c", "1:5", "mapping values are not allowed here", "quote a value that contains ': '"),
        ("a: {path: ${DIR}/x}", "1:12", "expected ',' or '}', but got '{'", "quote values with commas"),
        ("a: [1, 2", "1:4", "this '[' is never closed", "write ']' behind its last entry"),
        ("a: {b: [1, 2]\n", "1:4", "this '{' is never closed", "write '}' behind its last entry"),
        ("a: [b\nc: d", "2:2", "expected ',' or ']'", "quote values"),
        ("a: 'open", "1:9", "found unexpected end of stream", "close the quote"),
        ("a:\n  b: 1\n c: 2", "3:2", "expected <block end>", "indentation"),
        ("a: 1\n---\nb: 2", "2:1", "one YAML document, but a second one begins here", "a file of its own"),
        ("a: *nowhere", "1:4", "the anchor '&nowhere' is not defined", "before its first use"),
        ("a: &x [*x]", "1:8", "'*x' contains itself", "inside its own anchor"),
        ("? [a, b]\n: 1", "1:3", "a key must be a name", None),
        ("a: {<<: 3}", "1:9", "'<<' merges a mapping", None),
        ("a: \x07", "1:4", "does not allow the character U+0007", "escape"),
        ("[" * (MAX_DEPTH + 1), f"1:{MAX_DEPTH + 1}", "levels deep", None),
    ],
)
def test_what_is_not_yaml_is_reported_at_its_place(text: str, place: str, message: str, hint: str | None) -> None:
    _, diagnostics = read(text)
    (problem,) = diagnostics.found
    assert problem.location is not None
    assert f"{problem.location.line}:{problem.location.column}" == place
    assert message in problem.message
    assert hint is None or (problem.hint is not None and hint in problem.hint)


def test_aliases_cannot_blow_the_document_up() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    node, diagnostics = read("\n".join(lines))
    assert node is None
    assert "more than 100000 nodes, aliases included" in diagnostics.found[0].message


@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@`,?\n \t<", max_size=60))
def test_any_text_gives_a_tree_or_a_diagnostic(text: str) -> None:
    node, diagnostics = read(text)
    assert node is not None or diagnostics.has_errors or not text.strip() or "#" in text or "%" in text or "-" in text
