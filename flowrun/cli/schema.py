"""`flowrun schema`: the JSON Schema of pipeline files."""

from __future__ import annotations

import json

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of pipeline files, for editors.

    In VS Code: "yaml.schemas": {"flowrun.schema.json": "pipelines/*.yaml"}.
    """
    from flowrun.frontend.yaml.declaration.json_schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
