"""The registry of connectors: a table of flowrun's own, and entry points `flowrun.connectors` for those of other packages.

A connector's module is imported when the connector is first used, so that starting flowrun stays fast.
"""

from __future__ import annotations

import functools

from flowrun.api.connector import Connector
from flowrun.connectors.registered import loaded, registered
from flowrun.errors import InternalError, OptionError, did_you_mean

ENTRY_POINT_GROUP = "flowrun.connectors"

BUILT_IN = {
    "blackhole": "flowrun.connectors.blackhole:CONNECTOR",
    "datagen": "flowrun.connectors.datagen:CONNECTOR",
    "delta": "flowrun.connectors.delta:CONNECTOR",
    "filesystem": "flowrun.connectors.filesystem:CONNECTOR",
    "http": "flowrun.connectors.http:CONNECTOR",
    "hybrid": "flowrun.connectors.hybrid:CONNECTOR",
    "iceberg": "flowrun.connectors.iceberg:CONNECTOR",
    "jdbc": "flowrun.connectors.jdbc:CONNECTOR",
    "kafka": "flowrun.connectors.kafka:KAFKA",
    "memory": "flowrun.connectors.memory:CONNECTOR",
    "nexmark": "flowrun.connectors.nexmark:CONNECTOR",
    "postgres-cdc": "flowrun.connectors.postgres_cdc:CONNECTOR",
    "print": "flowrun.connectors.print:CONNECTOR",
    "redis": "flowrun.connectors.redis:CONNECTOR",
    "socket": "flowrun.connectors.socket:CONNECTOR",
    "upsert-kafka": "flowrun.connectors.kafka:UPSERT_KAFKA",
}
"""Name → `module:attribute` of a `Connector`."""


def connector_named(name: str) -> Connector:
    """The connector with this name.

    Raises:
        OptionError: there is no connector of this name; the message lists near matches.
        InternalError: two packages registered the name, or the object that is registered is no `Connector`.
        SetupError: the package that registered it cannot be imported.
    """
    target = _targets().get(name)
    if target is None:
        raise OptionError("connector", f"there is no connector '{name}'", hint=did_you_mean(name, _targets()))
    return _load(name, target)


def connector_names() -> tuple[str, ...]:
    """All names, sorted."""
    return tuple(sorted(_targets()))


@functools.cache
def _targets() -> dict[str, str]:
    return registered(BUILT_IN, ENTRY_POINT_GROUP, "connector")


@functools.cache
def _load(name: str, target: str) -> Connector:
    connector = loaded(target, f"connector '{name}'")
    if not isinstance(connector, Connector):
        raise InternalError(f"connector '{name}': {target} is not a Connector")
    return connector
