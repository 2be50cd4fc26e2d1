"""`validate`, `test`, `lint` and `graph` on all pipelines of a project, for people and for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from flowrun.cli.main import cli
from flowrun.errors import PipelineError

PROJECT = """
settings: {parallelism: 2}
environments: {prod: {variables: {LAKE: /lake}}}
variables: {LAKE: lake}
sources:
  orders: {connector: filesystem, format: json, path: "${LAKE}/orders", schema: {id: BIGINT, amount: DOUBLE}}
  paid: {connector: filesystem, format: json, path: "${LAKE}/paid/*.json", schema: {id: BIGINT, amount: DOUBLE}}
"""
PAID = """steps: {paid: {from: orders, filter: amount > 0}}
sinks: {out: {from: paid, connector: filesystem, format: json, path: "${LAKE}/paid"}}
"""
TOTAL = """steps: {total: {from: paid, aggregate: [SUM(amount) AS total]}}
sinks: {total: {from: total, connector: print}}
"""
TEST = """pipeline: paid.yaml
tests:
  - name: what is not paid is left out
    given: {orders: [{id: 1, amount: 0}, {id: 2, amount: 3}]}
    expect: {out: [{id: 2}]}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "lake" / "orders").mkdir(parents=True)
    (tmp_path / "lake" / "orders" / "a.json").write_text('{"id": 1, "amount": 2}')
    (tmp_path / "flowrun.yaml").write_text(PROJECT)
    write(tmp_path, paid=PAID, total=TOTAL)
    return tmp_path


def write(shop: Path, **pipelines: str) -> None:
    for name, text in pipelines.items():
        (shop / "pipelines" / f"{name}.yaml").write_text(text)


def call(*words: str) -> Result:
    result = CliRunner().invoke(cli, words)
    if isinstance(result.exception, PipelineError):  # which the console script shows with exit code 2
        result.exit_code = 2
        result.stderr_bytes = "\n".join(d.render() for d in result.exception.diagnostics).encode()
    elif result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


# -- validate ------------------------------------------------------------------------------------------------------------------


def test_a_whole_project_is_validated(shop: Path) -> None:
    result = call("validate")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line for line in result.stdout.splitlines() if not line.startswith(" ")] == [
        "pipelines/paid.yaml: valid",
        "pipelines/total.yaml: valid",
        "2 pipelines: 2 valid",
    ]


def test_a_project_is_found_from_a_folder_in_it(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop / "pipelines")
    result = call("validate")
    assert "2 pipelines: 2 valid" in result.stdout
    assert result.stderr.endswith(
        "pipelines/paid.yaml: there is no file at 'lake/orders', and no other pipeline here writes it\n"
    )
    monkeypatch.chdir(shop.parent)
    assert "2 pipelines: 2 valid" in call("validate", str(shop)).stdout
    assert "2 pipelines: 2 valid" in call("validate", str(shop / "pipelines")).stdout
    assert call("validate", str(shop / "lake")).stderr.startswith("error: there are no pipelines in")


def test_without_a_project_one_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("validate")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: there is no flowrun.yaml in '{tmp_path}' or above it")


def test_all_errors_of_all_pipelines_are_said(shop: Path) -> None:
    write(shop, paid=PAID.replace("amount > 0", "amuont > 0"), total=TOTAL.replace("from: total,", "from: totl,"))
    result = call("validate")
    assert result.exit_code == 2
    assert "pipelines/paid.yaml:1:38: error: " in result.stderr
    assert "pipelines/total.yaml:2:23: error: there is no source or step 'totl'" in result.stderr
    assert result.stdout == "2 pipelines: 0 valid, 2 with errors\n"


def test_an_environment_and_variables_count_for_all(shop: Path) -> None:
    out = "connector: filesystem, format: json, path: '${OUT}'"
    write(
        shop, total=TOTAL.replace("aggregate: [SUM(amount) AS total]", "select: [id]").replace("connector: print", out)
    )
    assert call("validate", "--var", "OUT=/out").stderr == ""
    assert "the variable 'NONE' is given but" in call("validate", "--var", "OUT=/out", "--var", "NONE=1").stderr
    shown = json.loads(call("graph", "--env", "prod", "--var", "OUT=/out", "--format", "json").stdout)
    assert shown["tables"] == ["/lake/orders", "/lake/paid", "/out"]
    assert call("validate", "--env", "prd").exit_code == 2


@pytest.mark.parametrize("command", ["validate", "lint", "graph", "lineage"])
def test_what_is_wrong_with_the_project_is_said_once(shop: Path, command: str) -> None:
    result = call(command, "--env", "prd")
    assert result.exit_code == 2
    assert result.stderr.count("there is no environment 'prd'") == 1
    assert "hint: did you mean 'prod'?" in result.stderr


def test_validation_as_json_has_each_pipeline(shop: Path) -> None:
    write(shop, total=TOTAL.replace("from: total,", "from: totl,"))
    report = json.loads(call("validate", "--format", "json").stdout)
    assert report["valid"] is False
    assert [(p["file"], p["valid"]) for p in report["pipelines"]] == [
        ("pipelines/paid.yaml", True),
        ("pipelines/total.yaml", False),
    ]
    (problem,) = [p for p in report["pipelines"][1]["problems"] if p["severity"] == "error"]
    assert (problem["file"], problem["line"], problem["column"]) == ("pipelines/total.yaml", 2, 23)
    alone = json.loads(call("validate", "pipelines/total.yaml", "--format", "json").stdout)
    assert set(alone) == {"valid", "problems", "delivery"}


def test_errors_become_annotations_of_github(shop: Path) -> None:
    write(shop, total=TOTAL.replace("from: total,", "from: totl,"))
    result = call("validate", "--format", "github")
    assert result.exit_code == 2
    lines = [line for line in result.stdout.splitlines() if line.startswith("::error")]
    assert lines == [
        "::error file=pipelines/total.yaml,line=2,col=23,endColumn=27,title=error::there is no source or step 'totl'%0A"
        "did you mean 'total'?"
    ]


# -- SARIF ---------------------------------------------------------------------------------------------------------------------


def check_sarif(log: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of a log, which has what SARIF 2.1.0 requires, with indexes and places that are right."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "flowrun"
    rules = driver["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert all(rule[part]["text"] for part in ("shortDescription", "fullDescription", "help"))
    assert run["columnKind"] == "unicodeCodePoints"
    for result in run["results"]:
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"]
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        for place in result["locations"]:
            physical = place["physicalLocation"]
            assert not physical["artifactLocation"]["uri"].startswith("/")
            region = physical["region"]
            assert region["startLine"] >= 1
            assert 1 <= region["startColumn"] < region["endColumn"]
    results: list[dict[str, Any]] = run["results"]
    return results


def test_errors_and_findings_become_sarif(shop: Path) -> None:
    write(shop, total=TOTAL.replace("from: total,", "from: totl,"))
    results = check_sarif(json.loads(call("validate", "--format", "sarif").stdout))
    (error,) = [r for r in results if r["level"] == "error"]
    place = error["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "pipelines/total.yaml"
    assert place["region"] == {"startLine": 2, "startColumn": 23, "endColumn": 27}
    write(shop, total=TOTAL)
    assert check_sarif(json.loads(call("validate", "--format", "sarif").stdout)) == []
    write(shop, total=TOTAL.replace("SUM(amount) AS total", "SUM(amount) AS total, COUNT(*) AS n, MAX(NOW()) AS at"))
    (finding,) = check_sarif(json.loads(call("lint", "--format", "sarif").stdout))
    assert (finding["ruleId"], finding["level"]) == ("processing-time-in-results", "warning")


# -- test ----------------------------------------------------------------------------------------------------------------------


def test_tests_of_a_project_run_from_anywhere_in_it_and_in_an_environment(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop / "pipelines" / "paid.test.yaml").write_text(TEST)
    monkeypatch.chdir(shop / "pipelines")
    assert "1 test passed in 1 file" in call("test").stdout
    assert "1 test passed in 1 file" in call("test", "--env", "prod").stdout
    assert "there is no environment 'prd'" in call("test", "--env", "prd").stderr


def test_tests_that_fail_become_annotations_sarif_and_json(shop: Path) -> None:
    (shop / "pipelines" / "paid.test.yaml").write_text(TEST.replace("[{id: 2}]", "[{id: 3}]"))
    result = call("test", "--format", "github")
    assert result.exit_code == 1
    assert result.stdout.startswith("::error file=pipelines/paid.test.yaml,line=5,col=")
    assert "title=failed-test::test 'what is not paid is left out' fails%0A" in result.stdout
    (failed,) = check_sarif(json.loads(call("test", "--format", "sarif").stdout))
    assert failed["ruleId"] == "failed-test"
    report = json.loads(call("test", "--format", "json").stdout)
    assert [(t["name"], t["passed"]) for t in report["tests"]] == [("what is not paid is left out", False)]
    assert len(report["problems"]) == 1


def test_a_broken_test_becomes_an_annotation(shop: Path) -> None:
    (shop / "pipelines" / "paid.test.yaml").write_text(TEST.replace("orders:", "ordrs:"))
    result = call("test", "--format", "github")
    assert result.exit_code == 2
    assert result.stdout.startswith("::error file=pipelines/paid.test.yaml,line=4,")
    assert "title=broken-test::" in result.stdout


# -- lint ----------------------------------------------------------------------------------------------------------------------


def test_a_project_without_findings(shop: Path) -> None:
    result = call("lint")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "nothing in 2 pipelines\n", "")


def test_findings_have_place_rule_and_remedy(shop: Path) -> None:
    write(shop, paid=PAID.replace("filter: amount > 0", "select: [id, amount, NOW() AS at]"))
    result = call("lint")
    assert (result.exit_code, result.stdout) == (1, "1 finding in 2 pipelines\n")
    assert result.stderr.startswith("pipelines/paid.yaml:1:9: warning: column 'at' of sink 'out' is made with")
    assert "[processing-time-in-results]\n    steps: {paid:" in result.stderr
    assert "  hint: go by event time" in result.stderr
    assert call("lint", "--ignore", "processing-time-in-results").exit_code == 0
    assert call("lint", "--select", "unused-column,empty-sink").exit_code == 0
    assert call("lint", "--format", "github").stdout.startswith("::warning file=pipelines/paid.yaml,line=1,col=9,")
    (as_json,) = json.loads(call("lint", "--format", "json").stdout)["findings"]
    assert (as_json["rule"], as_json["line"], as_json["severity"]) == ("processing-time-in-results", 1, "warning")


def test_a_pipeline_with_errors_ends_lint_with_two(shop: Path) -> None:
    write(shop, total=TOTAL.replace("from: total,", "from: totl,"))
    result = call("lint")
    assert (result.exit_code, result.stdout) == (2, "nothing else in 2 pipelines\n")
    assert "there is no source or step 'totl'" in result.stderr


def test_unknown_rules_and_explanations() -> None:
    assert call("lint", "--explain", "empty-sink").stdout.startswith("empty-sink: A sink never gets a row.\n\n")
    assert call("lint", "--explain", "all").stdout.count("\n\n") > 8
    result = call("lint", "--explain", "empty-snk")
    assert result.exit_code == 2
    assert result.stderr == "error: there is no rule 'empty-snk'\n  hint: did you mean 'empty-sink'?"


def test_of_a_program_nothing_is_known(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "from flowrun.datastream import StreamExecutionEnvironment\nenv = StreamExecutionEnvironment('j')\n"
        "rows = env.from_connector('datagen', 'n BIGINT', {'number-of-rows': '1'})\n"
        "rows.to_connector('print', {})\nenv.execute()\n"
    )
    result = call("lint", str(program))
    assert "is a program: nothing is known of it before it runs" in result.stderr
    assert result.exit_code == 0


# -- programs ------------------------------------------------------------------------------------------------------------------

PROGRAMS = PROJECT + "pipelines: [pipelines/*.yaml, 'jobs/*/job.py']\n"
JOB = """
from flowrun.datastream import StreamExecutionEnvironment
from naming import NAME

print("made", NAME)
env = StreamExecutionEnvironment(NAME)
lake = env.variables.get("LAKE", "lake")
rows = env.from_connector("filesystem", "id BIGINT, amount DOUBLE", {"path": f"{lake}/READ"}, format="json", name="rows")
rows.filter(lambda row: row["amount"] > 0).to_connector("filesystem", {"path": f"{lake}/WRITTEN"}, format="json", name="out")
numbers = env.from_elements(1, 2, name="numbers")
numbers.add_sink(print, name="shown")
env.execute()
"""


def write_program(shop: Path, name: str, text: str) -> None:
    (shop / "flowrun.yaml").write_text(PROGRAMS)
    folder = shop / "jobs" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.py").write_text(text)
    (folder / "naming.py").write_text(f"NAME = {name!r}")


def test_programs_that_a_project_names_are_validated_with_it(shop: Path) -> None:
    """Each is run up to its first job, with the modules beside it; what it prints is no part of the answer."""
    write_program(shop, "clean", JOB.replace("READ", "paid").replace("WRITTEN", "clean"))
    write_program(shop, "again", JOB.replace("READ", "clean").replace("WRITTEN", "again"))
    result = call("validate")
    assert result.exit_code == 0, result.stderr
    assert "jobs/clean/job.py: valid\n  sink 'out': at most once" in result.stdout
    assert result.stdout.endswith("4 pipelines: 4 valid\n")
    assert "made clean\n" in result.stderr
    told = json.loads(call("validate", "--format", "json").stdout)
    assert [p["file"] for p in told["pipelines"]][:2] == ["jobs/again/job.py", "jobs/clean/job.py"]


def test_programs_meet_pipelines_at_their_tables(shop: Path) -> None:
    write_program(shop, "clean", JOB.replace("READ", "paid").replace("WRITTEN", "clean"))
    write_program(shop, "again", JOB.replace("READ", "clean").replace("WRITTEN", "again"))
    assert call("graph").stdout.splitlines()[:13] == [
        "again  (jobs/again/job.py)",
        "  reads   lake/clean  ← clean",
        "  reads   source 'numbers' of again",
        "  writes  lake/again",
        "  writes  sink 'shown' of again",
        "clean  (jobs/clean/job.py)",
        "  reads   lake/paid  ← paid",
        "  reads   source 'numbers' of clean",
        "  writes  lake/clean  → again",
        "  writes  sink 'shown' of clean",
        "paid  (pipelines/paid.yaml)",
        "  reads   lake/orders",
        "  writes  lake/paid  → clean, total",
    ]


@pytest.mark.parametrize("command", ["graph", "validate", "lint"])
def test_a_program_owns_its_tables_as_pipelines_do(shop: Path, command: str) -> None:
    write_program(shop, "clean", JOB.replace("READ", "orders").replace("WRITTEN", "paid"))
    result = call(command)
    assert result.exit_code == 2
    assert "'paid' writes lake/paid, which 'clean' owns (jobs/clean/job.py:9:1)" in result.stderr


def test_lint_and_lineage_say_what_they_do_not_know_of_programs(shop: Path) -> None:
    write_program(shop, "clean", JOB.replace("READ", "paid").replace("WRITTEN", "clean"))
    linted = call("lint")
    assert linted.exit_code == 0
    assert "note: jobs/clean/job.py is a program: nothing is known of it before it runs" in linted.stderr
    followed = call("lineage", "total.total")
    assert followed.exit_code == 0
    assert "note: jobs/clean/job.py is a program: where its columns come from is not known" in followed.stderr
    assert "made of     paid.amount ← out.amount of pipelines/paid.yaml" in followed.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "if it is a module of functions, name the programs one by one in 'pipelines' of flowrun.yaml"),
        (
            "import sys\nsys.exit('give me a date')",
            "job.py: the program ended itself before it ran a job: give me a date",
        ),
        ("raise SystemExit(3)", "the program ended itself before it ran a job with code 3"),
        ("1 / 0", "job.py:1: the program failed: ZeroDivisionError: division by zero"),
        ("def f(:", "job.py:1: the program failed: SyntaxError: invalid syntax"),
        (
            JOB.replace("READ", "paid").replace("WRITTEN", "c").replace("from_elements(1, 2", "from_elements(1, 'a'"),
            "numbers",
        ),
    ],
)
def test_programs_that_are_wrong_are_said_beside_the_others(shop: Path, text: str, said: str) -> None:
    write_program(shop, "clean", text)
    result = call("validate")
    assert result.exit_code == 2, result.stdout
    assert said in result.stderr
    assert result.stdout.endswith("3 pipelines: 2 valid, 1 with errors\n")


# -- graph ---------------------------------------------------------------------------------------------------------------------


def test_pipelines_meet_at_their_tables(shop: Path) -> None:
    assert call("graph").stdout.splitlines() == [
        "paid  (pipelines/paid.yaml)",
        "  reads   lake/orders",
        "  writes  lake/paid  → total",
        "total  (pipelines/total.yaml)",
        "  reads   lake/paid  ← paid",
        "  writes  print 'total' of total",
    ]


LOADED = """steps: {loaded: {from: paid, filter: id > 3, select: ["amount * 2 AS twice"]}}
sinks: {load: {from: loaded, connector: blackhole}}
"""


@pytest.mark.parametrize(
    "words", [("total.total",), (".", "total.total"), ("flowrun.yaml", "total"), ("pipelines", "total")]
)
def test_columns_are_followed_through_the_tables_between_pipelines(shop: Path, words: tuple[str, ...]) -> None:
    (shop / "lake" / "orders" / "a.json").unlink()  # nothing is read, and what is between them need not be there yet
    (shop / "lake" / "orders").rmdir()
    result = call("lineage", *words)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "total.total  (pipelines/total.yaml)",
        "  made of     paid.amount ← out.amount of pipelines/paid.yaml",
        "  through     total",
        "out.amount  (pipelines/paid.yaml)",
        "  made of     orders.amount",
        "  through     paid",
    ]


def test_who_uses_a_column_in_a_whole_project(shop: Path) -> None:
    write(shop, loaded=LOADED)
    told = json.loads(call("lineage", "--from", "orders.id", "--format", "json").stdout)
    assert {(c["pipeline"], c["sink"], c["column"]) for c in told} == {
        ("pipelines/paid.yaml", "out", "id"),
        ("pipelines/loaded.yaml", "load", "twice"),
    }
    (twice,) = (c for c in told if c["sink"] == "load")
    assert twice["depends_on"] == [
        {
            "table": "paid",
            "column": "id",
            "written_by": [{"pipeline": "pipelines/paid.yaml", "sink": "out", "column": "id"}],
        }
    ]


def test_the_lineage_of_a_project_as_a_drawing(shop: Path) -> None:
    lines = call("lineage", "total.total", "--format", "mermaid").stdout
    assert '["out.amount (pipelines/paid.yaml)"] --> ' in lines
    assert '["paid.amount"]' not in lines


def test_what_has_no_lineage(shop: Path, tmp_path: Path) -> None:
    wrong = call("lineage", "total.totl")
    assert (wrong.exit_code, "did you mean 'total.total'" in wrong.stderr) == (2, True)
    broken = call("lineage", "--env", "prd")
    assert (broken.exit_code, "there is no environment 'prd'" in broken.stderr) == (2, True)
    (shop / "flowrun.yaml").unlink()
    assert "there is no file 'total.total'" in call("lineage", "total.total").stderr


def test_the_graph_in_other_forms(shop: Path) -> None:
    assert json.loads(call("graph", "--format", "json").stdout)["pipelines"][0] == {
        "name": "paid",
        "file": "pipelines/paid.yaml",
        "reads": ["lake/orders"],
        "writes": ["lake/paid"],
        "next": ["total"],
    }
    mermaid = call("graph", "--format", "mermaid").stdout.splitlines()
    assert mermaid[:4] == ["flowchart LR", '  p1["paid"]', '  p2["total"]', '  t1[("lake/orders")]']
    assert set(mermaid[-4:]) == {"  t1 --> p1", "  p1 --> t2", "  t2 --> p2", "  p2 --> t3"}
    dot = call("graph", "--format", "dot").stdout.splitlines()
    assert (dot[0], dot[-1]) == ("digraph pipelines {", "}")
    assert '  t2 [shape=cylinder, label="lake/paid"];' in dot
    assert "  p1 -> t2;" in dot


@pytest.mark.parametrize("command", ["validate", "lint", "graph"])
def test_a_circle_of_pipelines_is_an_error(shop: Path, command: str) -> None:
    back = "connector: filesystem, format: json, path: '${LAKE}/orders'"
    write(
        shop,
        total=TOTAL.replace("aggregate: [SUM(amount) AS total]", "select: [id, amount]").replace(
            "connector: print", back
        ),
    )
    result = call(command)
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "pipelines/total.yaml:2:9: error: pipelines read each other in a circle: 'paid' → 'total' → 'paid'; lake/orders closes it\n"
    )
    assert "  hint: let one of them write to another table" in result.stderr


@pytest.mark.parametrize("command", ["validate", "lint", "graph"])
def test_a_table_with_two_owners_is_an_error(shop: Path, command: str) -> None:
    write(shop, second=PAID)
    result = call(command)
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "pipelines/second.yaml:2:9: error: 'second' writes lake/paid, which 'paid' owns (pipelines/paid.yaml:2:9)\n"
    )
    assert "  hint: a table has one owner" in result.stderr


def test_a_name_that_two_pipelines_have_is_an_error(shop: Path) -> None:
    write(shop, total="name: paid\n" + TOTAL)
    result = call("validate")
    assert result.exit_code == 2
    assert "pipelines/paid.yaml and pipelines/total.yaml are both called 'paid'" in result.stderr


def test_a_pipeline_that_reads_what_it_writes_is_a_circle(shop: Path) -> None:
    write(shop, paid=PAID.replace("/paid", "/orders"))
    result = call("graph")
    assert result.exit_code == 2
    assert "'paid' reads lake/orders, which it writes itself" in result.stderr
