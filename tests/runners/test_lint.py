"""Each rule of `flowrun lint` finds what it is for, and nothing where that is not so; comments silence it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.connectors.filesystem.table_path import allowing_missing
from flowrun.errors import PipelineError
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.lint.reference import reference_markdown
from flowrun.runners.lint.rule import LintFinding
from flowrun.runners.lint.rules import BY_NAME, RULES, lint, rules_named
from flowrun.runners.projects.members import pipeline_files
from tests.runners.lint_pipelines import CLICKS, FOUND, NOT_FOUND

ROOT = Path(__file__).parents[2]
WINDOW = """
name: windows
sources:
  s: {connector: datagen, schema: {k: BIGINT, ts: TIMESTAMP(3)}, watermark: {column: ts}}
steps:
  per_minute:
    from: s
    key_by: k
    window: {type: tumbling, size: 1m, allowed_lateness: 5m}
    aggregate: [COUNT(*) AS n]
sinks:
  out: {from: per_minute, connector: filesystem, path: out, format: json}
"""
STEPS = """sources:
  clicks:
    connector: datagen
    schema: {id: BIGINT, u: BIGINT, price: DOUBLE, ts: TIMESTAMP(3)}
    computed: {pt: PROCTIME()}
    watermark: {column: ts}
  views:
    connector: datagen
    schema: {v: BIGINT, page: STRING, ts2: TIMESTAMP(3)}
steps:
  totals: {from: clicks, key_by: u, aggregate: [COUNT(*) AS n, SUM(price) AS total]}
  slim: {from: totals, select: [u, n, n + 1 AS more, now() AS at]}
  slimmer: {from: slim, select: [u, n, at]}
  both: {from: clicks, join: {with: views, on: u = v}}
  w: {from: clicks, key_by: u, window: {type: tumbling, size: 1m, time: processing}, aggregate: [COUNT(*) AS n]}
  asked:
    sql: |
      SELECT c.id, v.page
      FROM clicks AS c
      JOIN views AS v ON c.u = v.v
sinks:
  o1: {from: slimmer, connector: print}
  o2: {from: both, connector: print}
  o3: {from: w, connector: print}
  o4: {from: asked, connector: print}
"""
QUIET_WINDOW = WINDOW.replace(", allowed_lateness: 5m", "")


def found(tmp_path: Path, text: str, *rules: str, name: str = "p.sql") -> list[LintFinding]:
    path = tmp_path / name
    path.write_text(text)
    return list(lint(compile_pipeline(path), rules_named(rules, ())))


@pytest.mark.parametrize(("rule", "query"), [(r, q) for r, queries in FOUND.items() for q in queries])
def test_a_rule_finds_what_it_is_for(tmp_path: Path, rule: str, query: str) -> None:
    findings = found(tmp_path, CLICKS + query + ";\n", rule)
    assert findings, query
    for finding in findings:
        assert finding.rule == rule
        assert finding.location is not None
        assert finding.message
        assert finding.remedy


@pytest.mark.parametrize(("rule", "query"), [(r, q) for r, queries in NOT_FOUND.items() for q in queries])
def test_a_rule_finds_nothing_where_it_is_not_so(tmp_path: Path, rule: str, query: str) -> None:
    assert found(tmp_path, CLICKS + query + ";\n", rule) == []


def test_superseded_rows_are_found_in_yaml(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, WINDOW, "superseded-rows", name="p.yaml")
    assert finding.location is not None
    assert finding.location.line == 12
    assert found(tmp_path, QUIET_WINDOW, "superseded-rows", name="p.yaml") == []


def test_every_rule_has_a_case_of_both_kinds() -> None:
    names = {rule.name for rule in RULES} - {"superseded-rows"}  # which has its own test
    assert set(FOUND) == names
    assert set(NOT_FOUND) == names


def test_findings_stand_in_the_order_of_the_text(tmp_path: Path) -> None:
    text = CLICKS + "SELECT user_id, COUNT(*) AS n FROM clicks GROUP BY user_id;\nSELECT id, NOW() AS at FROM clicks;\n"
    assert [f.rule for f in found(tmp_path, text)] == ["state-without-limit", "processing-time-in-results"]


@pytest.mark.parametrize(
    "text",
    [
        "-- flowrun: ignore state-without-limit\nSELECT user_id, COUNT(*) AS n FROM clicks GROUP BY user_id;",
        "-- flowrun: ignore unused-column, state-without-limit\n-- few users\n\nSELECT user_id, COUNT(*) FROM clicks GROUP BY user_id",
        "SELECT user_id, COUNT(*) AS n FROM clicks GROUP BY user_id; -- flowrun: ignore state-without-limit",
    ],
)
def test_a_comment_silences_a_rule_in_its_line_or_the_next(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, CLICKS + text, "state-without-limit") == []


@pytest.mark.parametrize(
    "text",
    [
        "-- flowrun: ignore unused-column\nSELECT user_id, COUNT(*) AS n FROM clicks GROUP BY user_id;",
        "-- flowrun: ignore state-without-limit\nSELECT 1;\nSELECT user_id, COUNT(*) AS n FROM clicks GROUP BY user_id;",
        "SELECT user_id, COUNT(*) AS n FROM clicks GROUP BY user_id;\n-- flowrun: ignore state-without-limit",
    ],
)
def test_a_comment_elsewhere_or_of_another_rule_silences_nothing(tmp_path: Path, text: str) -> None:
    assert len(found(tmp_path, CLICKS + text, "state-without-limit")) == 1


def test_comments_silence_rules_in_yaml(tmp_path: Path) -> None:
    text = WINDOW.replace("  out:", "  # flowrun: ignore superseded-rows\n  out:")
    assert found(tmp_path, text, "superseded-rows", name="p.yaml") == []


def test_a_comment_that_names_no_rule_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PipelineError) as error:
        found(tmp_path, "SELECT 1; -- flowrun: ignore unused-colum")
    (problem,) = error.value.diagnostics
    assert str(problem.location) == f"{tmp_path / 'p.sql'}:1:30"
    assert problem.hint == "did you mean 'unused-column'?"


def test_a_finding_in_a_shared_table_is_silenced_there(tmp_path: Path) -> None:
    (tmp_path / "flowrun.yaml").write_text("tables: [tables.sql]\n")
    table = "CREATE TABLE t (a INT,{}\n  at AS NOW()) WITH ('connector' = 'datagen');"
    (tmp_path / "tables.sql").write_text(table.format(""))
    rule = "processing-time-in-results"
    (finding,) = found(tmp_path, "SELECT * FROM t", rule)
    assert finding.location is not None
    assert (Path(finding.location.file).name, finding.location.line) == ("tables.sql", 1)
    (tmp_path / "tables.sql").write_text(table.format(f" -- flowrun: ignore {rule}"))
    assert found(tmp_path, "SELECT * FROM t", rule) == []


def test_rules_are_chosen_by_name() -> None:
    assert rules_named((), ("empty-sink",)) == tuple(r for r in RULES if r.name != "empty-sink")
    assert rules_named(("empty-sink", "unused-column"), ("unused-column",)) == (BY_NAME["empty-sink"],)
    with pytest.raises(PipelineError, match="there is no rule 'empty-sinks'"):
        rules_named(("empty-sinks",), ())


def test_the_reference_has_each_rule_with_its_explanation() -> None:
    page = reference_markdown()
    for rule in RULES:
        assert f"| [`{rule.name}`](#{rule.name}) | {rule.summary} |" in page
        assert rule.explanation in page


def test_findings_in_yaml_stand_at_the_keys_of_their_steps(tmp_path: Path) -> None:
    places = {(f.rule, f.location.line) for f in found(tmp_path, STEPS, name="p.yaml") if f.location is not None}
    lines = STEPS.splitlines()

    def of(name: str) -> int:
        return next(number for number, text in enumerate(lines, 1) if f" {name}" in text)

    assert places == {
        ("processing-time-in-results", of("clicks:")),
        ("processing-time-in-results", of("slim:")),
        ("processing-time-in-results", of("w:")),
        ("state-without-limit", of("totals:")),
        ("state-without-limit", of("both:")),
        ("unused-column", of("totals:")),
        ("unused-column", of("slim:")),
        ("multiplying-join", of("both:")),
        ("multiplying-join", of("FROM clicks")),
    }


@pytest.mark.exhaustive
def test_rules_can_look_at_every_pipeline_of_the_repository() -> None:
    names: set[str] = set()
    with allowing_missing():
        for path in pipeline_files(ROOT / "pipelines"):
            try:
                compiled = compile_pipeline(path, {"EVENTS": "5", "OUT": "out", "SIDE_INPUT": "side"})
            except PipelineError:
                continue  # it needs a server
            names |= {f.rule for f in lint(compiled, RULES)}
    assert names >= {"processing-time-in-results", "multiplying-join"}
