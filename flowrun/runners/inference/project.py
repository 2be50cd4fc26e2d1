"""A project around data that nobody has declared: a pipeline, a test of it, what runs both for every change, settings of editors."""

from __future__ import annotations

import json
from collections.abc import Mapping

from flowrun.runners.inference.declaration import Declaration, as_yaml
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
        with: {python-version: "3.12"}
      - run: pip install flowrun-streaming  # from where your team keeps it
      - run: flowrun validate pipeline.yaml
      - run: flowrun test
"""
_README = """\
# {name}

    flowrun preview pipeline.yaml    # rows of a sample of the data, without a trace
    flowrun dev pipeline.yaml        # the same, and the tests, again whenever something changes
    flowrun test                     # the tests in tests/
    flowrun run pipeline.yaml

`pipeline.yaml` was proposed from a sample of `{path}`: its comments say what was seen. Look at types, keys and the delay of the
watermark before you rely on them, then add steps and sinks. `tests/pipeline.test.yaml` has the first rows of the sample as a first test.
"""


def project_files(declared: Declaration, schema: Mapping[str, object]) -> dict[str, str]:
    """The files of a project by their paths.

    Args:
        declared: the source.
        schema: the JSON Schema of pipelines, for editors.
    """
    settings = {"yaml.schemas": {"./flowrun.schema.json": [PIPELINE]}}
    return {
        PIPELINE: as_yaml(declared),
        TEST: _test(declared),
        "README.md": _README.format(name=declared.name, path=declared.sample.path),
        ".github/workflows/pipelines.yml": _WORKFLOW,
        ".vscode/settings.json": json.dumps(settings, indent=2) + "\n",
        "flowrun.schema.json": json.dumps(schema, indent=2) + "\n",
    }


def _test(declared: Declaration) -> str:
    """What comes in comes out: a test that passes until the pipeline does something."""
    names = [
        column.name for column in declared.columns if column.note is None
    ]  # values of several kinds are no values of a test
    rows = [_row({name: row.get(name) for name in names}) for row in declared.sample.rows[:_ROWS]]
    given = "\n".join(f"        - {row}" for row in rows)
    return (
        f"pipeline: ../{PIPELINE}\n\ntests:\n  - name: rows come through\n    given:\n      {yaml_text(declared.name)}:\n{given}\n"
        f"    expect:\n      show:\n{given}\n"
    )


def _row(row: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{yaml_text(name)}: {yaml_text(value)}" for name, value in row.items()) + "}"
