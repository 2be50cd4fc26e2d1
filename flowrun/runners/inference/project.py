"""A project around data that nobody has declared: a pipeline, a test of it, `flowrun.yaml`, a workflow, settings of editors."""

from __future__ import annotations

import json
from collections.abc import Mapping

from flowrun.connectors.registry import connector_named
from flowrun.frontend.project_file import PROJECT_FILE
from flowrun.runners.inference.declaration import Declaration, as_yaml
from flowrun.runners.inference.sample import Sample
from flowrun.runners.pipeline_tests.row_texts import yaml_text

PIPELINE = "pipeline.yaml"
TEST = "tests/pipeline.test.yaml"
_ROWS = 2
_WORKFLOW = """\
# Checks the pipelines, and runs their tests, for every change.
name: pipelines
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {{python-version: "3.12"}}
      - run: pip install flowrun-streaming  # from where your team keeps it
      - run: flowrun validate{variables} --format github
      - run: flowrun lint{variables} --format github
      - run: flowrun test --format github
"""
_PROJECT = """\
# What all pipelines of this folder share. Commands without a path (validate, lint, test, graph) are about all of them.
pipelines: ["*.yaml"]  # and "*.sql", when there are scripts
"""
_LOOKS = """\
    flowrun preview pipeline.yaml    # rows of a sample of the data, without a trace
    flowrun dev pipeline.yaml        # the same, and the tests, again whenever something changes
"""
_README = """\
# {name}

{looks}    flowrun test                     # the tests in tests/
    flowrun run pipeline.yaml
    flowrun lint                     # what is right in pipelines, but seldom meant

`pipeline.yaml` was proposed from a sample of `{path}`: its comments say what was seen. Look at types, keys and the delay of the
watermark before you rely on them, then add steps and sinks. `tests/pipeline.test.yaml` has the first rows of the sample as a first test.
"""
_NO_SECRET = "unused"
"""What a variable that holds a secret is where nothing outside is asked."""


def project_files(declared: Declaration, schema: Mapping[str, object]) -> dict[str, str]:
    """The files of a project by their paths.

    Args:
        declared: the source.
        schema: the JSON Schema of pipelines, for editors.
    """
    sample = declared.sample
    settings = {"yaml.schemas": {"./flowrun.schema.json": [PIPELINE]}}
    looks = "" if _leaves_a_trace(sample) else _LOOKS
    variables = "".join(f" --var {name}={_NO_SECRET}" for name in sample.variables)
    return {
        PIPELINE: as_yaml(declared),
        PROJECT_FILE: _PROJECT,
        TEST: _test(declared),
        "README.md": _README.format(name=declared.name, path=sample.place, looks=looks),
        ".github/workflows/pipelines.yml": _WORKFLOW.format(variables=variables),
        ".vscode/settings.json": json.dumps(settings, indent=2) + "\n",
        "flowrun.schema.json": json.dumps(schema, indent=2) + "\n",
    }


def first_command(sample: Sample) -> str:
    """What to do in a new project: a command without `flowrun`."""
    return "test" if _leaves_a_trace(sample) else f"dev {PIPELINE}"


def _leaves_a_trace(sample: Sample) -> bool:
    """Whether reading the data leaves something behind, so that it is not just looked at."""
    return connector_named(sample.connector).reading_leaves is not None


def _test(declared: Declaration) -> str:
    """What comes in comes out: a test that passes until the pipeline does something."""
    sample = declared.sample
    names = [
        column.name for column in declared.columns if column.note is None
    ]  # values of several kinds are no values of a test
    by_key = {tuple(repr(row.get(name)) for name in sample.primary_key or row): row for row in sample.rows}
    rows = [_row({name: row.get(name) for name in names}) for row in list(by_key.values())[:_ROWS]]
    given = "\n".join(f"        - {row}" for row in rows)
    listed = "{" + ", ".join(f"{name}: {_NO_SECRET}" for name in sample.variables) + "}"
    variables = f"variables: {listed}\n" if sample.variables else ""
    return (
        f"pipeline: ../{PIPELINE}\n{variables}\ntests:\n  - name: rows come through\n"
        f"    given:\n      {yaml_text(declared.name)}:\n{given}\n"
        f"    expect:\n      show:\n{given}\n"
    )


def _row(row: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{yaml_text(name)}: {yaml_text(value)}" for name, value in row.items()) + "}"
