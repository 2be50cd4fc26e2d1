"""`flowrun schema`: the JSON Schema of pipeline files."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--tests", is_flag=True, help="That of files of tests, NAME.test.yaml.")
@click.option("--project", is_flag=True, help="That of flowrun.yaml, the document of a project.")
def schema(tests: bool, project: bool) -> None:
    """Print the JSON Schema of pipeline files, for editors.

    In VS Code: "yaml.schemas": {"flowrun.schema.json": "pipelines/*.yaml"}.
    """
    from flowrun.frontend.yaml.declaration.json_schema import json_schema, schema_of

    if tests and project:
        raise click.UsageError("--tests and --project are two documents: give one of them")
    if tests:
        from flowrun.frontend.pipeline_tests.declaration import TESTS

        click.echo(json.dumps(schema_of(TESTS, "flowrun tests"), indent=2))
        return
    if project:
        from flowrun.frontend.project.declaration import DOCUMENT

        click.echo(json.dumps(schema_of(DOCUMENT, "flowrun project"), indent=2))
        return
    click.echo(json.dumps(json_schema(), indent=2))
