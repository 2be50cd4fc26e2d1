"""Whether what the connectors and formats of a plan need is installed, asked before anything runs: no sink is written in vain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowrun.api.client_library import ClientLibrary
from flowrun.connectors.formats.registry import format_named
from flowrun.connectors.registry import connector_named
from flowrun.plan.joins import LookupJoin
from flowrun.plan.nodes import Plan, Scan, Sink, TableReference, walk_plan
from flowrun.plan.tables import KEY_FORMAT


def check_client_libraries(plan: Plan) -> None:
    """Pass if this process can import the client library of each table of a plan.

    Raises:
        SetupError: one is not installed; names it, who needs it, and the command that installs it.
    """
    for node in walk_plan(plan):
        if isinstance(node, Scan | Sink | LookupJoin):
            for needed_by, client in _clients(node.table):
                if not client.is_installed:
                    raise client.missing(client.modules[0], needed_by)


def _clients(table: TableReference) -> Iterator[tuple[str, ClientLibrary]]:
    """(who needs it, what) for each client library of a table."""
    tables: list[tuple[object, Mapping[str, object]]] = [(table.connector, table.options)]
    formats: list[object] = [table.format, table.options.get(KEY_FORMAT)]
    if connector_named(table.connector).source_options_for is not None:  # tables of others, under names of their own
        of_others = [(k.removesuffix("connector"), v) for k, v in table.options.items() if k.endswith(".connector")]
        tables += ((name, _behind(prefix, table.options)) for prefix, name in of_others)
        formats += (v for k, v in table.options.items() if k.endswith(".format"))
    for name, options in tables:
        connector = connector_named(str(name))
        client = connector.client if connector.client_of is None else connector.client_of(options)
        if client is not None:
            yield f"connector '{connector.name}'", client
    for form in formats:
        if form is not None and (client := format_named(str(form)).client) is not None:
            yield f"format '{form}'", client


def _behind(prefix: str, options: Mapping[str, object]) -> Mapping[str, object]:
    return {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
