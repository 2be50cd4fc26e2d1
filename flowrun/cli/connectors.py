"""`flowrun connectors [NAME]`: which connectors exist, and which options they take."""

from __future__ import annotations

import json

import click

from flowrun.api.connector import Connector
from flowrun.api.source import Delivery
from flowrun.connectors.formats.registry import format_options
from flowrun.connectors.reference import abilities, default_text, own_lookup_options
from flowrun.connectors.registry import connector_named, connector_names
from flowrun.core.options import Option, OptionType
from flowrun.errors import FlowrunError


@click.command()
@click.argument("name", required=False)
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def connectors(name: str | None, output: str) -> None:
    """List connectors, or show the options of one."""
    if name is None:
        _list_all(output)
        return
    connector = connector_named(name)
    if output == "json":
        click.echo(json.dumps(_as_json(connector), indent=2))
        return
    made = (("source", connector.create_source), ("sink", connector.create_sink), ("lookup", connector.create_lookup))
    roles = [role for role, make in made if make]
    click.echo(f"{connector.name} ({', '.join(roles)}): {connector.summary}")
    if connector.formats:
        click.echo(f"formats: {', '.join(connector.formats)}")
    if connector.default_schema is not None:
        click.echo(f"columns: {connector.default_schema}")
    if connector.client is not None:
        click.echo(f"needs {connector.client.command} ({_installed(connector)})")
    for role, delivery in (("source", connector.source_delivery), ("sink", connector.sink_delivery)):
        if delivery is not None:
            click.echo(f"as a {role}, with checkpoints: {delivery.value}")
    for line in (*abilities(connector), *([connector.notes] if connector.notes else [])):
        click.echo(line)
    declared = (
        ("source", connector.source_options),
        ("sink", connector.sink_options),
        ("lookup", own_lookup_options(connector)),
    )
    for role, options in declared:
        if options:
            click.echo(f"\n{role} options:")
            _show_options(options)
    _show_formats(connector)


def _list_all(output: str) -> None:
    found: list[Connector] = []
    broken: dict[str, FlowrunError] = {}
    for name in connector_names():
        try:
            found.append(connector_named(name))
        except FlowrunError as error:  # of another package: the others can be listed
            broken[name] = error
    if output == "json":
        errors = [{"name": name, "error": problem.message} for name, problem in broken.items()]
        click.echo(json.dumps([*(_as_json(c) for c in found), *errors], indent=2))
        return
    click.echo(f"{'':<14} {'as source':<14} {'as sink':<14} {'lookup':<7} {'installed':<10}")
    for connector in found:
        source = _role(connector.create_source is not None, connector.source_delivery)
        sink = _role(connector.create_sink is not None, connector.sink_delivery)
        lookup = "-" if connector.create_lookup is None else "yes"
        installed = "yes" if connector.client is None or connector.client.is_installed else "no"
        click.echo(f"{connector.name:<14} {source:<14} {sink:<14} {lookup:<7} {installed:<10} {connector.summary}")
    for name, problem in broken.items():
        click.echo(f"{name:<14} {'?':<14} {'?':<14} {'?':<7} {'broken':<10} {problem.message}")
    click.echo(
        "\nWhat a source or sink promises holds with checkpoints; `flowrun explain FILE` says what a pipeline promises."
    )
    click.echo("`flowrun connectors NAME` shows the options of one.")


def _installed(connector: Connector) -> str:
    return "installed" if connector.client is None or connector.client.is_installed else "not installed"


def _role(can: bool, delivery: Delivery | None) -> str:
    if not can:
        return "-"
    return "yes" if delivery is None else delivery.value


def _show_formats(connector: Connector) -> None:
    if not connector.formats:
        return
    for name in connector.formats:
        declared = format_options(name).options
        if declared:
            click.echo(f"\noptions of format {name}:")
            _show_options(declared, prefix=f"{name}.")


def _show_options(options: tuple[Option, ...], prefix: str = "") -> None:
    for option in options:
        kind = "|".join(option.choices) if option.type is OptionType.ENUM else option.type.value
        given = default_text(option)
        given = f"default {given}" if given and not option.required else given
        click.echo(f"  {prefix + option.name:<36} {kind:<14} {given}")
        click.echo(f"      {option.doc}")


def _as_json(connector: Connector) -> dict[str, object]:
    def options(declared: tuple[Option, ...]) -> list[dict[str, object]]:
        return [
            {
                "name": o.name,
                "type": o.type.value,
                "default": o.default,
                "required": o.required,
                "choices": list(o.choices),
                "doc": o.doc,
            }
            for o in declared
        ]

    return {
        "name": connector.name,
        "summary": connector.summary,
        "source": connector.create_source is not None,
        "sink": connector.create_sink is not None,
        "source_delivery": None if connector.source_delivery is None else connector.source_delivery.value,
        "sink_delivery": None if connector.sink_delivery is None else connector.sink_delivery.value,
        "lookup": connector.create_lookup is not None,
        "installed": connector.client is None or connector.client.is_installed,
        "install": None if connector.client is None else connector.client.command,
        "formats": list(connector.formats),
        "source_watermarks": connector.source_watermarks,
        "metadata": {key: str(type) for key, type in connector.metadata},
        "writable_metadata": {key: str(type) for key, type in connector.writable_metadata},
        "columns": None if connector.default_schema is None else str(connector.default_schema),
        "source_options": options(connector.source_options),
        "sink_options": options(connector.sink_options),
        "lookup_options": options(connector.lookup_options),
    }
