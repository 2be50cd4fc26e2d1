"""`flowrun schema`: the JSON Schema of pipeline files."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--tests", is_flag=True, help="That of files of tests, NAME.test.yaml.")
def schema(tests: bool) -> None:
    """Print the JSON Schema of pipeline files, for editors.

    In VS Code: "yaml.schemas": {"flowrun.schema.json": "pipelines/*.yaml"}.
    """
    from flowrun.frontend.yaml.declaration.json_schema import json_schema, schema_of

    if tests:
        from flowrun.frontend.pipeline_tests.declaration import TESTS

        click.echo(json.dumps(schema_of(TESTS, "flowrun tests"), indent=2))
        return
    click.echo(json.dumps(json_schema(), indent=2))
