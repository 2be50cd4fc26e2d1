"""Whether what the connectors and formats of a plan need is installed, asked before anything runs: no sink is written in vain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowrun.api.client_library import ClientLibrary
from flowrun.connectors.formats.registry import format_named
from flowrun.connectors.registry import connector_named
from flowrun.connectors.table_options import KEY_FORMAT, VALUE_FORMAT
from flowrun.plan.joins import LookupJoin
from flowrun.plan.nodes import Plan, Scan, Sink, walk_plan


def check_client_libraries(plan: Plan) -> None:
    """Pass if this process can import the client library of each table of a plan.

    Raises:
        SetupError: one is not installed; names it, who needs it, and the command that installs it.
    """
    for node in walk_plan(plan):
        if isinstance(node, Scan | Sink | LookupJoin):
            table = node.table
            for needed_by, client in _clients(table.connector, table.format, table.options):
                if not client.is_installed:
                    raise client.missing(client.missing_module, needed_by)


def _clients(
    connector_name: str, format_name: object, options: Mapping[str, object]
) -> Iterator[tuple[str, ClientLibrary]]:
    """(who needs it, what) for each client library of a table, and of those that it is made of."""
    connector = connector_named(connector_name)
    client = connector.client if connector.client_of is None else connector.client_of(options)
    if client is not None:
        yield f"connector '{connector.name}'", client
    for name in (format_name, options.get(KEY_FORMAT)):
        if name is not None and (client := format_named(str(name)).client) is not None:
            yield f"format '{name}'", client
    for part in () if connector.parts_of is None else connector.parts_of(options):
        yield from _clients(str(part["connector"]), part.get("format", part.get(VALUE_FORMAT)), part)
