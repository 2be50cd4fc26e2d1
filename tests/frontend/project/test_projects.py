"""`flowrun.yaml`: what pipelines get from it, what comes before what, and what is said of mistakes in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from flowrun.connectors.filesystem.table_path import allowing_missing
from flowrun.core.row_errors import OnError
from flowrun.errors import PipelineError
from flowrun.frontend.pipeline import LoadedPipeline, load_pipeline
from flowrun.frontend.project.files import project_around
from flowrun.frontend.project_file import ENVIRONMENT
from flowrun.plan.nodes import Plan, Scan, walk_plan

PROJECT = """
settings:
  parallelism: 2
  state_ttl: 1h
  checkpoint: {dir: state}
  restart: {strategy: fixed_delay, attempts: 7}
variables: {DATA: data, NAME: project}
environments:
  dev: {}
  prod:
    settings: {parallelism: 4, checkpoint: {interval: 10s}}
    variables: {DATA: "${ROOT:-/prod}/data"}
functions: {SHOUT: "words:shout"}
tables: [shared/*.sql]
sources:
  orders: {connector: filesystem, format: json, path: "${DATA}/orders", schema: {id: BIGINT, who: STRING}}
  broken: {connector: filesystem, format: json, path: "${NEVER_SET}", schema: {id: BIGINT}}
"""
TABLES = "CREATE TABLE orders (id BIGINT, who STRING) WITH ('connector'='filesystem','format'='json','path'='${DATA}/orders') -- no end"
YAML = "sinks: {out: {from: orders, connector: print}}\n"
SQL = "SELECT id FROM orders;\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("pipelines", "shared", "data/orders"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "flowrun.yaml").write_text(PROJECT)
    (tmp_path / "shared" / "tables.sql").write_text(TABLES)
    (tmp_path / "words.py").write_text("def shout(text: str) -> str:\n    return text.upper()\n")
    (tmp_path / "data" / "orders" / "a.json").write_text('{"id": 1, "who": "ann"}\n')
    return tmp_path


def load(
    root: Path, name: str, text: str, *, env: str | None = None, given: Mapping[str, str] | None = None, **settings: str
) -> LoadedPipeline:
    file = root / "pipelines" / name
    file.write_text(text)
    overrides = {f"settings.{key}": value for key, value in settings.items()}
    if env is not None:
        overrides[ENVIRONMENT] = env
    with allowing_missing():
        return load_pipeline(Path("pipelines") / name, given, overrides, environment={"NAME": "process"})


def errors_of(root: Path, project: str, pipeline: str = YAML, name: str = "p.yaml", **more: str) -> list[str]:
    (root / "flowrun.yaml").write_text(project)
    with pytest.raises(PipelineError) as error:
        load(root, name, pipeline, **more)  # type: ignore[arg-type]
    return [d.render() for d in error.value.diagnostics]


def path_read(plan: Plan) -> object:
    (scan,) = (n for n in walk_plan(plan) if isinstance(n, Scan))
    return scan.table.options["path"]


@pytest.mark.parametrize(("name", "text"), [("p.yaml", YAML), ("p.sql", SQL)])
def test_sources_settings_and_variables_come_from_the_project(root: Path, name: str, text: str) -> None:
    loaded = load(root, name, text)
    assert path_read(loaded.plan) == "data/orders"
    assert loaded.plan.settings.parallelism == 2
    assert loaded.plan.settings.state_ttl_ms == 3_600_000
    assert loaded.plan.settings.checkpoint is None, "the project says where checkpoints lie, not that some are taken"
    assert loaded.diagnostics == ()


@pytest.mark.parametrize(("name", "text"), [("p.yaml", YAML), ("p.sql", SQL)])
def test_an_environment_comes_before_the_project(root: Path, name: str, text: str) -> None:
    loaded = load(root, name, text, env="prod", given={"ROOT": "/else"})
    settings = loaded.plan.settings
    assert path_read(loaded.plan) == "/else/data/orders"
    assert (settings.parallelism, settings.state_ttl_ms) == (4, 3_600_000)
    assert settings.checkpoint is not None
    assert (settings.checkpoint.interval_ms, settings.checkpoint.directory) == (10_000, "state")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.yaml", "settings: {parallelism: 3, restart: {strategy: none}}\n" + YAML),
        ("p.sql", "SET 'parallelism.default' = '3'; SET 'restart-strategy' = 'none';\n" + SQL),
    ],
)
def test_the_pipeline_comes_before_the_environment_and_the_command_line_before_all(
    root: Path, name: str, text: str
) -> None:
    loaded = load(root, name, text, env="prod")
    assert loaded.plan.settings.parallelism == 3
    assert loaded.plan.settings.state_ttl_ms == 3_600_000
    assert loaded.plan.settings.restart != load(root, name, YAML if name == "p.yaml" else SQL).plan.settings.restart
    assert load(root, name, text, env="prod", parallelism="8").plan.settings.parallelism == 8


@pytest.mark.parametrize("name", ["p.yaml", "p.sql"])
def test_a_variable_of_the_command_line_comes_first_and_of_the_process_last(root: Path, name: str) -> None:
    where = "${NAME}-${DATA}"
    text = (
        f"sources: {{s: {{connector: filesystem, format: json, path: '{where}', schema: {{id: BIGINT}}}}}}\n"
        "sinks: {out: {from: s, connector: print}}\n"
        if name == "p.yaml"
        else f"CREATE TABLE s (id BIGINT) WITH ('connector'='filesystem','format'='json','path'='{where}'); SELECT * FROM s;"
    )
    for folder in ("project-data", "given-data"):
        (root / folder).mkdir()
    assert path_read(load(root, name, text).plan) == "project-data"
    assert path_read(load(root, name, text, given={"NAME": "given"}).plan) == "given-data"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.yaml", "steps: {loud: {from: orders, select: ['shout(who) AS who']}}\nsinks: {out: {from: loud, connector: print}}"),
        ("p.sql", "SELECT Shout(who) FROM orders"),
    ],
)  # fmt: skip
def test_functions_of_the_project_are_imported_from_its_folder_where_they_are_called(
    root: Path, name: str, text: str
) -> None:
    load(root, name, text)
    (root / "flowrun.yaml").write_text(PROJECT.replace("words:shout", "words:missing"))
    with pytest.raises(PipelineError) as error:
        load(root, name, text)
    problem = error.value.diagnostics[-1]
    assert problem.location is not None
    assert len(error.value.diagnostics) == 1, "not told again where it is called"
    assert (problem.location.file, problem.location.line) == ("flowrun.yaml", 13)
    load(root, name, YAML if name == "p.yaml" else SQL)  # which calls none


def test_what_a_pipeline_declares_itself_comes_before_what_the_project_does(root: Path) -> None:
    own = "sources: {orders: {connector: filesystem, format: json, path: data, schema: {id: BIGINT}}}\n" + YAML
    assert path_read(load(root, "p.yaml", own).plan) == "data"
    script = "CREATE TABLE orders (id BIGINT) WITH ('connector'='filesystem','format'='json','path'='data');\n" + SQL
    assert path_read(load(root, "p.sql", script).plan) == "data"
    assert path_read(load(root, "p.sql", "DROP TABLE orders;" + script).plan) == "data"
    with pytest.raises(PipelineError, match="table 'orders' exists already in line 1"):
        load(root, "p.sql", script.replace("SELECT", script.partition("\n")[0] + "SELECT"))


def test_the_command_line_changes_shared_tables_too(root: Path) -> None:
    file = root / "pipelines" / "p.yaml"
    file.write_text(YAML)
    assert path_read(load_pipeline(file, {}, {"sources.orders.path": "data"}).plan) == "data"
    script = root / "pipelines" / "p.sql"
    script.write_text(SQL)
    assert path_read(load_pipeline(script, {}, {"tables.orders.path": "data"}).plan) == "data"


def test_a_source_that_is_only_mentioned_is_not_read(root: Path) -> None:
    text = YAML.replace("print}", "filesystem, path: orders_out, format: json}") + "# orders, broken\n"
    loaded = load(root, "p.yaml", text.replace("orders_out", "out/orders"))
    assert {n.table.name for n in walk_plan(loaded.plan) if isinstance(n, Scan)} == {"orders"}


def test_a_misspelt_source_is_found_among_those_of_the_project(root: Path) -> None:
    (problem,) = errors_of(
        root, PROJECT, "sources: {x: {connector: nexmark}}\nsinks: {out: {from: ordrs, connector: print}}"
    )
    assert problem.startswith("pipelines/p.yaml:2:21: error: there is no source or step 'ordrs'")
    assert "did you mean 'orders'?" in problem


def test_the_document_of_a_project_is_no_pipeline(root: Path) -> None:
    with pytest.raises(PipelineError, match=r"'flowrun\.yaml' is the document of a project, and no pipeline"):
        load_pipeline(root.relative_to(root) / "flowrun.yaml")


def test_without_a_project_there_are_no_environments(tmp_path: Path) -> None:
    (tmp_path / "p.sql").write_text("SELECT 1")
    with pytest.raises(PipelineError, match=r"--env prod: there is no flowrun\.yaml in '.*' or above it"):
        load_pipeline(tmp_path / "p.sql", {}, {ENVIRONMENT: "prod"})


def test_a_secret_of_the_project_stays_one(root: Path) -> None:
    project = PROJECT.replace("NAME: project", "NAME: '${secret:file:key.txt}'")
    (root / "key.txt").write_text("hush-hush")
    (root / "flowrun.yaml").write_text(project)
    load(root, "p.yaml", YAML)
    found = errors_of(root, project, YAML.replace("connector: print", "connector: print, schema: {id: '${NAME}'}"))
    assert "a secret cannot be used in 'id'" in found[0]
    assert "hush" not in "".join(found)


@pytest.mark.parametrize(
    ("project", "place", "says"),
    [
        ("pipelins: [a.yaml]", "flowrun.yaml:1:1", "a project has no key 'pipelins'"),
        ("settings: {paralelism: 2}", "flowrun.yaml:1:12", "settings has no key 'paralelism'"),
        ("settings: {parallelism: two}", "flowrun.yaml:1:25", "'parallelism' expects a whole number"),
        ("environments:\n  prod: {setings: {}}", "flowrun.yaml:2:10", "an environment has no key 'setings'"),
        ("environments:\n  prod: {settings: {parallelism: 0}}", "flowrun.yaml:2:34", "must be at least 1"),
        ("default_environment: prd\nenvironments: {prod: {}}", "flowrun.yaml:1:22", "there is no environment 'prd'"),
        ("sources: {s: {path: x}}", "flowrun.yaml:1:14", "a source needs the key 'connector'"),
        ("functions: {f: words.shout}", "flowrun.yaml:1:16", "written module:function"),
        ("variables: {a-b: 1}", "flowrun.yaml:1:13", "letters, digits and _"),
        ("tables: [shared/none.sql]", "flowrun.yaml:1:10", "tables: no file is called 'shared/none.sql'"),
        ("tables: [../x.sql]", "flowrun.yaml:1:10", "leads out of the project"),
        ("tables: [words.py]", "flowrun.yaml:1:10", "'words.py' is no SQL file"),
        ("- a", "flowrun.yaml:1:1", "a project expects a mapping, got a list"),
        ("a: [", "flowrun.yaml:1:4", "YAML syntax"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_project_is_said_with_its_place(root: Path, project: str, place: str, says: str) -> None:
    found = errors_of(root, project, SQL, "p.sql")
    assert found[0].startswith(f"{place}: error:"), found
    assert says in found[0]


def test_an_unknown_environment_is_said_with_those_that_there_are(root: Path) -> None:
    (problem,) = errors_of(root, PROJECT, env="prd")
    assert problem.startswith("flowrun.yaml:8:1: error: there is no environment 'prd' in flowrun.yaml")
    assert "did you mean 'prod'?" in problem


def test_only_references_that_a_pipeline_uses_are_filled(root: Path) -> None:
    (problem,) = errors_of(root, PROJECT, YAML.replace("orders", "broken"))
    assert problem.startswith("flowrun.yaml:17:56: error: the variable 'NEVER_SET' is not set")
    wrong = PROJECT.replace("parallelism: 2", "parallelism: '${MANY}'")
    (problem,) = errors_of(root, wrong, given={"MANY": "many"})
    assert problem.startswith("flowrun.yaml:3:16: error: 'parallelism' expects a whole number")


@pytest.mark.parametrize(
    "statement", ["SELECT 1", "INSERT INTO orders SELECT 1, 'a'", "SET 'parallelism.default' = '3'"]
)
def test_files_of_tables_only_declare(root: Path, statement: str) -> None:
    (root / "shared" / "tables.sql").write_text(f"CREATE VIEW v AS SELECT 1 AS a;\n{statement};")
    (problem,) = errors_of(root, PROJECT, "SELECT * FROM v", "p.sql")
    assert problem.startswith("shared/tables.sql:2:1: error: a file of the project's tables can only declare")


def test_an_error_in_a_shared_table_has_its_own_place(root: Path) -> None:
    (root / "shared" / "tables.sql").write_text(TABLES.replace("BIGINT", "BIGNT"))
    found = errors_of(root, PROJECT, SQL, "p.sql")
    assert found[0].startswith("shared/tables.sql:1:25: error:"), found
    (root / "shared" / "tables.sql").write_text(TABLES)
    (problem,) = errors_of(root, PROJECT, "SELECT id,\n  nothing FROM orders", "p.sql")
    assert problem.startswith("pipelines/p.sql:2:3: error:")


def test_pipelines_of_a_project_are_found_by_patterns_without_tests_and_tables(root: Path) -> None:
    for name in ("b.yaml", "a.sql", "a.test.yaml", ".hidden.yaml", "notes.md"):
        (root / "pipelines" / name).write_text("")
    (root / "pipelines" / "deep").mkdir()
    (root / "pipelines" / "deep" / "c.yml").write_text("")
    found = project_around(root / "pipelines")
    assert found is not None
    assert [str(p) for p in found.pipelines()] == ["pipelines/a.sql", "pipelines/b.yaml", "pipelines/deep/c.yml"]
    (root / "flowrun.yaml").write_text("pipelines: ['**/*.sql', 'pipelines/b.yaml']\ntables: [shared/*.sql]\n")
    found = project_around(root)
    assert found is not None
    assert [str(p) for p in found.pipelines()] == ["pipelines/a.sql", "pipelines/b.yaml"]


def test_programs_are_pipelines_if_the_project_names_them(root: Path) -> None:
    for name in ("a.sql", "functions.py", "job.py"):
        (root / "pipelines" / name).write_text("")
    found = project_around(root)
    assert found is not None
    assert [str(p) for p in found.pipelines()] == ["pipelines/a.sql"]
    (root / "flowrun.yaml").write_text("pipelines: ['pipelines/*.sql', pipelines/job.py]\n")
    found = project_around(root)
    assert found is not None
    assert [str(p) for p in found.pipelines()] == ["pipelines/a.sql", "pipelines/job.py"]


@pytest.mark.parametrize(
    ("patterns", "says"),
    [
        ("[pipelines/*.yaml]", "pipelines: no file matches 'pipelines/*.yaml'"),
        ("[notes.md]", "'notes.md' is no pipeline in YAML or SQL, and no program"),
    ],
)
def test_patterns_that_name_no_pipelines_are_errors(root: Path, patterns: str, says: str) -> None:
    (root / "flowrun.yaml").write_text(f"pipelines: {patterns}\n")
    (root / "notes.md").write_text("")
    found = project_around(root)
    assert found is not None
    with pytest.raises(PipelineError) as error:
        found.pipelines()
    assert error.value.diagnostics[0].render().startswith(f"flowrun.yaml:1:13: error: {says}")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to somebody else")
def test_a_project_of_another_user_is_refused(root: Path) -> None:
    load(root, "p.yaml", YAML)
    os.chown(root / "flowrun.yaml", 12_345, 12_345)
    with pytest.raises(PipelineError, match=r"flowrun\.yaml belongs to another user \(uid 12345\)"):
        load(root, "p.yaml", YAML)
    os.chown(root / "pipelines", 12_345, 12_345)
    load(root, "p.yaml", YAML)


SOURCES = """
variables: {SECRET: '${secret:env:KEY}'}
sources:
  clicks:
    connector: filesystem
    format: json
    path: data/it's
    json: {ignore-parse-errors: true}
    schema: {user id: BIGINT, price: "DECIMAL(10, 2)", at: TIMESTAMP(3)}
    computed: {twice: price * 2}
    watermark: {column: at, delay: 1500ms, idle_timeout: 10s}
    primary_key: [user id]
    parallelism: 1
    on_error: {mode: skip}
  stored: {connector: jdbc, url: 'jdbc:postgresql://h/d', table-name: t, username: u, password: '${SECRET}', schema: {a: INT}}
  parts: {connector: filesystem, format: json, path: data, schema: {a: INT, day: DATE}, partition_by: day}
  events: {connector: nexmark, watermark: {column: dateTime, type: source}}
  odd: {connector: datagen, uid: mine, schema: {t: TIMESTAMP(3)}, watermark: {column: t, type: monotonous}}
  timed: {connector: datagen, schema: {t: TIMESTAMP(3)}, watermark: {time: t}}
  placed: {connector: filesystem, format: json, path: data, schema: {a: INT}, metadata: {from file: file.path, at: file.modification-time}}
"""


@pytest.fixture
def with_sources(root: Path) -> Path:
    (root / "flowrun.yaml").write_text(SOURCES)
    return root


def the_scan(loaded: LoadedPipeline) -> Scan:
    (scan,) = (n for n in walk_plan(loaded.plan) if isinstance(n, Scan))
    return scan


def test_scripts_read_the_sources_of_the_project_as_pipelines_in_yaml_do(with_sources: Path) -> None:
    of_script = the_scan(load(with_sources, "p.sql", "SELECT * FROM clicks"))
    of_yaml = the_scan(load(with_sources, "p.yaml", "sinks: {out: {from: clicks, connector: print}}"))
    assert (of_script.schema.names, of_script.schema.types) == (of_yaml.schema.names, of_yaml.schema.types)
    assert of_script.projections == of_yaml.projections
    assert (of_script.table.connector, of_script.table.format) == (of_yaml.table.connector, of_yaml.table.format)
    assert dict(of_script.table.options) == dict(of_yaml.table.options)
    assert of_script.table.primary_key == of_yaml.table.primary_key == ("user id",)
    marks = of_script.watermark, of_yaml.watermark
    assert all(m is not None and (m.delay_ms, m.idle_timeout_ms, m.column) == (1500, 10_000, "at") for m in marks)
    hints = of_script.hints, of_yaml.hints
    assert all((h.parallelism, h.on_error) == (1, OnError.SKIP) for h in hints)
    assert of_script.hints.location is not None
    assert (of_script.hints.location.file, of_script.hints.location.line) == ("flowrun.yaml", 4)


def test_scripts_read_metadata_of_sources_as_pipelines_in_yaml_do(with_sources: Path) -> None:
    of_script = the_scan(load(with_sources, "p.sql", "SELECT * FROM placed"))
    of_yaml = the_scan(load(with_sources, "p.yaml", "sinks: {out: {from: placed, connector: print}}"))
    assert (of_script.schema, of_script.physical) == (of_yaml.schema, of_yaml.physical)
    assert of_script.projections == of_yaml.projections
    assert of_script.table.metadata == of_yaml.table.metadata
    assert list(of_yaml.table.metadata.values()) == ["file.path", "file.modification-time"]


def test_partitions_and_watermarks_of_sources_reach_scripts(with_sources: Path) -> None:
    assert the_scan(load(with_sources, "p.sql", "SELECT * FROM parts")).table.partition_keys == ("day",)


def test_secrets_of_sources_stay_secrets_in_scripts(with_sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineError) as error:
        load(with_sources, "p.sql", "SELECT * FROM stored")
    assert "the secret's environment variable 'KEY' is not set" in str(error.value)
    monkeypatch.setenv("KEY", "hush-hush")
    file = with_sources / "pipelines" / "p.sql"
    assert the_scan(load_pipeline(file)).table.secret_options >= {"password"}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("odd", [("18:29", "the key 'uid'"), ("18:96", "a watermark of type 'monotonous'")]),
        ("timed", [("19:69", "an event time that is no column")]),
    ],
)
def test_what_sql_has_no_words_for_is_said_where_it_stands(
    with_sources: Path, source: str, says: list[tuple[str, str]]
) -> None:
    with pytest.raises(PipelineError) as error:
        load(with_sources, "p.sql", f"SELECT t FROM {source}")
    found = [
        d.render().split("\n")[0] for d in error.value.diagnostics if d.location and d.location.file == "flowrun.yaml"
    ]
    what = f"error: a script cannot read source '{source}' of the project: SQL has no words for"
    assert found == [f"flowrun.yaml:{place}: {what} {part}" for place, part in says]


def test_an_error_in_a_source_has_its_place_for_scripts_too(with_sources: Path) -> None:
    (with_sources / "flowrun.yaml").write_text(
        SOURCES.replace("price * 2", "prize * 2").replace("TIMESTAMP(3)}\n", "TIMESTMP(3)}\n")
    )
    with pytest.raises(PipelineError) as error:
        load(with_sources, "p.sql", "SELECT * FROM clicks")
    places = [str(d.location) for d in error.value.diagnostics]
    assert places[0].startswith("flowrun.yaml:9:"), error.value
    (with_sources / "flowrun.yaml").write_text(
        SOURCES.replace("json: {ignore-parse-errors: true}", "ignore-pars: true")
    )
    with pytest.raises(PipelineError) as error:
        load(with_sources, "p.sql", "SELECT * FROM clicks")
    assert str(error.value.diagnostics[0].location) == "flowrun.yaml:8:5"


def test_a_file_of_tables_comes_before_a_source_and_may_read_it(root: Path) -> None:
    (root / "shared" / "tables.sql").write_text("CREATE VIEW firsts AS SELECT who FROM orders;")
    assert path_read(load(root, "p.sql", "SELECT * FROM firsts").plan) == "data/orders"
    (root / "shared" / "tables.sql").write_text(TABLES.replace("${DATA}/orders", "data"))
    assert path_read(load(root, "p.sql", SQL).plan) == "data"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.sql", "SELECT id AS broken, 'broken' AS odd FROM orders -- broken"),
        ("p.sql", "CREATE VIEW broken AS SELECT 1 AS a; SELECT a FROM broken"),
        ("p.sql", "WITH broken AS (SELECT 1 AS a) SELECT a FROM broken"),
        ("p.yaml", "steps: {s: {from: orders, select: [id AS broken]}}\nsinks: {broken: {from: s, connector: print}}"),
        ("p.yaml", "steps: {broken: {from: orders}}\nsinks: {o: {from: broken, connector: print}}"),
    ],
)
def test_a_name_like_that_of_a_source_is_not_the_source(root: Path, name: str, text: str) -> None:
    load(root, name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.sql", "CREATE TABLE o LIKE orders; INSERT INTO o SELECT * FROM (SELECT * FROM orders) AS x"),
        ("p.sql", "SELECT id FROM orders WHERE id IN (SELECT id FROM orders)"),
        ("p.yaml", "steps: {s: {sql: 'SELECT id FROM orders'}}\nsinks: {o: {from: s, connector: print}}"),
        ("p.yaml", "sinks: {o: {from: '${WHICH:-orders}', connector: print}}"),
        ("p.yaml", "steps: {s: {union: [orders, orders]}}\nsinks: {o: {from: s, connector: print}}"),
    ],
)
def test_sources_are_found_wherever_they_are_read(root: Path, name: str, text: str) -> None:
    (root / "flowrun.yaml").write_text(PROJECT.replace("tables: [shared/*.sql]\n", ""))
    assert path_read(load(root, name, text).plan) == "data/orders"


def test_the_command_line_may_name_a_source_of_the_project(root: Path) -> None:
    file = root / "pipelines" / "p.yaml"
    file.write_text("sources: {x: {connector: nexmark}}\nsinks: {o: {from: x, connector: print}}")
    assert path_read(load_pipeline(file, {}, {"sinks.o.from": "orders"}).plan) == "data/orders"


def test_a_function_that_is_only_named_is_not_imported(root: Path) -> None:
    (root / "words.py").unlink()
    load(root, "p.sql", "SELECT who AS shout FROM orders")
    load(
        root,
        "p.yaml",
        "steps: {shout: {from: orders, select: [who AS shout]}}\nsinks: {o: {from: shout, connector: print}}",
    )
