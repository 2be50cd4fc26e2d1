"""Filling ${…}: values only, the command line before the environment, secrets never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import References
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.interpolation import Interpolation
from flowrun.frontend.trees.nodes import YamlMapping, YamlScalar, scalars
from flowrun.frontend.trees.reader import read_yaml


def fill(
    text: str, *, folder: Path = Path(), environment: dict[str, str] | None = None, **variables: str
) -> tuple[list[YamlScalar], Diagnostics, References]:
    source = SourceText("p.yaml", text)
    diagnostics = Diagnostics(source)
    tree = read_yaml(source, diagnostics)
    assert tree is not None
    references = References(variables, environment or {}, folder)
    return list(scalars(Interpolation(references).apply(tree, diagnostics))), diagnostics, references


def test_the_command_line_wins_over_the_environment() -> None:
    (scalar,), diagnostics, _ = fill("path: ${DIR}/x", environment={"DIR": "/env"}, DIR="/var")
    assert scalar.text == "/var/x"
    assert not diagnostics.found


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("a: ${A:-in}/x", "in/x"),
        ("a: ${EMPTY:-in}/x", "in/x"),
        ("a: ${A:-}x", "x"),
        ("a: ${DIR:-in}${DIR}", "dd"),
        ("a: $${DIR} ${DIR}", "${DIR} d"),
        ("a: $DIR $.x ${DIR}", "$DIR $.x d"),
        ("a: 'costs $5'", "costs $5"),
    ],
)
def test_forms_of_references(text: str, filled: str) -> None:
    (scalar,), diagnostics, _ = fill(text, DIR="d", EMPTY="")
    assert scalar.text == filled
    assert not diagnostics.found


def test_keys_and_comments_are_left_alone_and_values_cannot_change_the_structure() -> None:
    scalars_, diagnostics, _ = fill("${X}: '${INJECTED}'  # ${NOT_SET}", INJECTED="a: b\nc: [d]")
    assert [s.text for s in scalars_] == ["a: b\nc: [d]"]
    assert not diagnostics.found


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("a: 1\nb: x/${HOEM}", "2:6", "the variable 'HOEM' is not set", "did you mean 'HOME'?"),
        ("b: x/${QQQ}", "1:6", "the variable 'QQQ' is not set", "--var QQQ=…"),
        ("b: ${A B}", "1:4", "'${A B}' names no variable", "write ${NAME}"),
        ("b: ${A", "1:4", "'${' without '}'", "write ${NAME}"),
        ("b: ${secret:vault:x}", "1:4", "'${secret:vault:x}' names no secret", "${secret:file:PATH}"),
        ("b: ${secret:env:NOPE}", "1:4", "environment variable 'NOPE' is not set", None),
        ("b: ${secret:file:none.txt}", "1:4", "cannot read the secret file", None),
        ('b: "${secret:file:a\\0b}"', "1:5", "has a NUL character", None),
    ],
)
def test_what_cannot_be_filled_is_reported_at_the_reference(
    text: str, place: str, message: str, hint: str | None
) -> None:
    scalars_, diagnostics, _ = fill(text, environment={"HOME": "/root"})
    (problem,) = diagnostics.found
    assert problem.location is not None
    assert f"{problem.location.line}:{problem.location.column}" == place
    assert message in problem.message
    assert hint is None or (problem.hint is not None and hint in problem.hint)
    assert scalars_[-1].unresolved


def test_places_behind_a_filled_reference_stay_exact() -> None:
    (scalar,), _, _ = fill("x: \"amount > ${LIMIT} and nope = '${NAME}'\"", LIMIT="1000000", NAME="n")
    assert scalar.text == "amount > 1000000 and nope = 'n'"
    at = scalar.locate(scalar.text.index("nope"), 4)
    assert (at.column, at.length) == (27, 4)
    inside = scalar.locate(scalar.text.index("1000000"), 7)
    assert (inside.column, inside.length) == (14, len("${LIMIT}"))


def test_a_secret_is_read_from_its_file_and_masked_in_every_message(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cr3t\n")
    (scalar,), diagnostics, _ = fill("a: Bearer ${secret:file:token}", folder=tmp_path)
    assert scalar.text == "Bearer s3cr3t"
    assert scalar.secret
    diagnostics.error("cannot use 's3cr3t' here", scalar.location, hint="not s3cr3t")
    assert "s3cr3t" not in "".join(d.render() for d in diagnostics.found)


def test_variables_that_the_document_does_not_mention_are_known() -> None:
    _, diagnostics, references = fill("a: ${DIR}", DIR="d", DRI="e")
    references.warn_unused("the pipeline", diagnostics)
    (warning,) = diagnostics.found
    assert "'DRI' is given but the pipeline does not use it" in warning.message
    assert warning.hint == "did you mean 'DIR'?"


def test_an_alias_is_filled_once_and_stays_one_node() -> None:
    source = SourceText("p.yaml", "a: &x {k: '${V}'}\nb: *x")
    diagnostics = Diagnostics(source)
    tree = read_yaml(source, diagnostics)
    assert tree is not None
    filled = Interpolation(References({"V": "1"}, {}, Path())).apply(tree, diagnostics)
    assert isinstance(filled, YamlMapping)
    assert filled.get("a") is filled.get("b")
