"""The JSON Schema agrees with validation: it accepts what flowrun accepts and rejects typos, so that editors help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from flowrun.frontend.pipeline_tests.declaration import TESTS as TESTS_DECLARATION
from flowrun.frontend.project.declaration import DOCUMENT as PROJECT_DECLARATION
from flowrun.frontend.yaml.declaration.json_schema import DIALECT, json_schema, schema_of

FILES = sorted(
    p for p in (Path(__file__).parents[3] / "pipelines").rglob("*.yaml") if not p.name.endswith(".test.yaml")
)
TESTS = [p for p in FILES if p.name.endswith(".test.yaml")]
PIPELINES = [p for p in FILES if p not in TESTS]
VALID = """
name: everything
functions: {clean: "functions:clean"}
settings:
  state_ttl: 0
  parallelism: ${P:-2}
  buffer_timeout: 0
  checkpoint: {interval: 10s, mode: exactly_once, dir: state, retain: 3, unaligned: false, timeout: 10m, min_pause: 0s}
  restart: {strategy: failure_rate, max_failures: 3, interval: 5m, delay: 10s}
sources:
  orders:
    connector: filesystem
    path: in/
    format: csv
    csv.field-delimiter: ";"
    csv: {null-literal: "-"}
    schema: {id: BIGINT, ts: TIMESTAMP(3)}
    primary_key: [id]
    lookup.cache: none
    computed: {day: "DATE_FORMAT(ts, 'yyyy-MM-dd')"}
    watermark: {column: ts, delay: 1m 30s, idle_timeout: 30s}
    parallelism: 2
  numbers:
    connector: datagen
    schema: {id: BIGINT, ts: TIMESTAMP(3)}
    number-of-rows: 100
    fields: {id: {kind: sequence, start: 1, end: 10}}
    fields.ts.max-past: 1h
steps:
  both: {union: [orders, numbers], filter: true}
  s:
    from: both
    select: ["*"]
    map: "functions:clean"
    key_by: id
    null_keys: group
    window: {type: sliding, size: 1m, slide: 10s, offset: -5s, allowed_lateness: 0s, late_output: late, trigger: {every: 5s}}
    aggregate: [COUNT(*) AS n, SUM(id) AS total]
    having: n > 1
    uid: s
    chaining: false
  t: {from: s, flat_map: {function: "functions:f", row: true, schema: {a: INT}}, split: {x: a > 1, y: "a < 1"}}
  u: {from: t, key_by: [a], process: "functions:Alerts"}
  v:
    from: u
    process: {function: "functions:Alerts", with: {limit: 5, names: [a, b]}, schema: {a: INT}, side_outputs: {side: {a: INT}}}
  w: {sql: "SELECT id, a FROM s, v"}
  j:
    from: w
    join: {with: orders, as: o, type: left, on: w.id = o.id, as_of: w.ts, kind: temporal}
    unnest: {column: tags, as: [tag], ordinality: pos, outer: true}
    over: ["SUM(a) OVER (PARTITION BY id ORDER BY ts) AS total"]
    distinct: true
  k: {from: j, key_by: id, deduplicate: {keep: last, order_by: ts}, order_by: ts}
  l: {intersect: [j, k], top_n: {partition_by: id, order_by: [a DESC], n: 5, rank: rn, function: dense_rank}}
  m: {except: [j, k], match_recognize: PATTERN (A B), order_by: a, limit: 10, offset: 5}
sinks:
  out: {from: x, connector: filesystem, path: out/, format: json, partition_by: [a], schema: {a: BIGINT}, primary_key: a}
  late: {from: late, connector: print}
"""


class Yaml12(yaml.SafeLoader):
    """Reads as editors do, by YAML 1.2: only true and false are booleans, `on` is a text."""


Yaml12.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(text: str) -> Any:
    """A document as its editor sees it."""
    return yaml.load(text, Yaml12)


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = json_schema()
    assert schema["$schema"] == DIALECT
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_a_pipeline_with_everything_is_accepted(validator: Any) -> None:
    assert [e.message for e in validator.iter_errors(read(VALID))] == []


@pytest.mark.parametrize("path", PIPELINES, ids=lambda p: p.stem)
def test_the_example_pipelines_are_accepted(validator: Any, path: Path) -> None:
    assert [e.message for e in validator.iter_errors(read(path.read_text()))] == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("name: everything", "nmae: everything"),
        ("buffer_timeout: 0", "bufer_timeout: 0"),
        ("buffer_timeout: 0", "buffer_timeout: 5"),
        ("parallelism: ${P:-2}", "parallelism: 0"),
        ("strategy: failure_rate", "strategy: failure-rate"),
        ("max_failures: 3", "attempts: 3"),
        ("connector: datagen", "connector: datagne"),
        ("number-of-rows: 100", "number-of-row: 100"),
        ("number-of-rows: 100", "number-of-rows: many"),
        ("fields.ts.max-past: 1h", "fields.ts.max-passed: 1h"),
        ("csv.field-delimiter", "csv.field-delimeter"),
        ("format: csv", "format: cvs"),
        ("delay: 1m 30s", "delay: 1m 30"),
        ("type: sliding", "type: slidng"),
        ("slide: 10s", "gap: 10s"),
        ('select: ["*"]', "select: []"),
        ("null_keys: group", "null_keys: keep"),
        ("from: s, flat_map", "form: s, flat_map"),
        ("row: true", "row: sometimes"),
        ("with: {limit", "given: {limit"),
        ("side: {a: INT}", "side: [a]"),
        ('map: "functions:clean"', "map: functions"),
        ("union: [orders, numbers]", "union: [orders]"),
        ("connector: print", "connector: socket"),
        ("  late: {from: late", "  late: {frm: late"),
        ('sql: "SELECT', 'sqll: "SELECT'),
        ("type: left, on", "type: outer, on"),
        ("kind: temporal", "kind: hash"),
        ("keep: last", "keep: newest"),
        ("function: dense_rank", "function: sum"),
        ("as: [tag]", "as: []"),
        ("limit: 10", "limit: 0"),
        ("state_ttl: 0", "state_ttl: -5"),
        ("primary_key: a}", "primary-key: a}"),
        ('clean: "functions:clean"', "clean: functions"),
    ],
)
def test_typos_are_rejected(validator: Any, right: str, wrong: str) -> None:
    assert right in VALID
    assert list(validator.iter_errors(read(VALID.replace(right, wrong, 1))))


@pytest.mark.parametrize("path", TESTS, ids=lambda p: p.stem)
def test_files_of_tests_have_a_schema_of_their_own(path: Path) -> None:
    schema = schema_of(TESTS_DECLARATION, "flowrun tests")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    document = read(path.read_text())
    assert [e.message for e in validator.iter_errors(document)] == []
    assert [e.message for e in validator.iter_errors({**document, "test": []})] != []
    assert [e.message for e in validator.iter_errors({**document, "tests": [{"name": "a", "given": 1}]})] != []


PROJECT = """
pipelines: [pipelines/*.yaml]
settings: {checkpoint: {dir: state}}
environments: {prod: {settings: {parallelism: "${N}", checkpoint: {interval: 10s}}, variables: {LAKE: /lake}}}
default_environment: prod
functions: {SHOUT: "words:shout"}
tables: shared/*.sql
sources: {orders: {connector: kafka, topic: orders, schema: {id: BIGINT}}}
"""


def test_the_document_of_a_project_has_a_schema_of_its_own() -> None:
    schema = schema_of(PROJECT_DECLARATION, "flowrun project")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert [e.message for e in validator.iter_errors(read(PROJECT))] == []
    for right, wrong in (
        ("environments", "environmnts"),
        ("dir: state", "dirs: state"),
        ("words:shout", "words.shout"),
    ):
        assert list(validator.iter_errors(read(PROJECT.replace(right, wrong, 1))))


def test_a_pipeline_of_a_project_may_have_no_sources_of_its_own(validator: Any) -> None:
    assert list(validator.iter_errors(read("sinks: {o: {from: orders, connector: print}}"))) == []
    assert list(validator.iter_errors(read("sources: {o: {connector: nexmark}}")))
