"""The registry of kinds of catalogs: a table of flowrun's own, and entry points `flowrun.catalogs` for those of other packages.

The module of a kind is imported when a script first names it.
"""

from __future__ import annotations

import functools

from flowrun.api.table_catalog import CatalogType
from flowrun.connectors.registered import loaded, registered
from flowrun.errors import InternalError, OptionError, did_you_mean

ENTRY_POINT_GROUP = "flowrun.catalogs"
TYPE = "type"
"""The option that names the kind."""

BUILT_IN = {
    "iceberg": "flowrun.connectors.iceberg.table_catalog:CATALOG_TYPE",
    "jdbc": "flowrun.connectors.jdbc.table_catalog:CATALOG_TYPE",
}
"""Name → `module:attribute` of a `CatalogType`."""

_INSTEAD = {
    **dict.fromkeys(
        ("postgres", "postgresql"), "PostgreSQL is 'type' = 'jdbc' with 'base-url' = 'jdbc:postgresql://host:port'"
    ),
    "generic_in_memory": "tables that a script declares are in default_catalog.default_database",
    "hive": "tables of a Hive metastore are reached through an Iceberg REST catalog",
}


def catalog_type_named(name: str) -> CatalogType:
    """The kind of catalog with this name.

    Raises:
        OptionError: there is none; the message lists near matches.
        InternalError: two packages registered the name, or the object that is registered is no `CatalogType`.
    """
    target = _targets().get(name)
    if target is None:
        hint = _INSTEAD.get(name.lower()) or did_you_mean(name, _targets())
        raise OptionError(TYPE, f"there is no catalog type '{name}'", hint=hint)
    return _load(name, target)


def catalog_type_names() -> tuple[str, ...]:
    """All names, sorted."""
    return tuple(sorted(_targets()))


@functools.cache
def _targets() -> dict[str, str]:
    return registered(BUILT_IN, ENTRY_POINT_GROUP, "catalog type")


@functools.cache
def _load(name: str, target: str) -> CatalogType:
    found = loaded(target, f"catalog type '{name}'")
    if not isinstance(found, CatalogType):
        raise InternalError(f"catalog type '{name}': {target} is not a CatalogType")
    return found
