"""The dialect of each scheme, which is imported when it is needed."""

from __future__ import annotations

import importlib
from typing import cast

from flowrun.connectors.jdbc.relation import Dialect

_DIALECTS = {
    "postgresql": "flowrun.connectors.jdbc.postgres.dialect:PostgresDialect",
    "duckdb": "flowrun.connectors.jdbc.duckdb.dialect:DuckDbDialect",
    "sqlite": "flowrun.connectors.jdbc.sqlite.dialect:SqliteDialect",
}


def dialect_of(scheme: str) -> Dialect:
    """The dialect of a scheme of `address.FORMS`."""
    module, _, name = _DIALECTS[scheme].partition(":")
    return cast(Dialect, getattr(importlib.import_module(module), name)())
