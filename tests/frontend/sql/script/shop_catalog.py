"""A catalog in memory for tests: it is like one of another package, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from flowrun.api.table_catalog import CatalogType, StoredColumn, StoredTable
from flowrun.connectors import catalogs
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.types import BIGINT, STRING, decimal, row, with_required
from flowrun.errors import ConnectorError, OptionError

NESTED = with_required(row(("a b", BIGINT), ("c", STRING)), (True, False))
ORDERS = StoredTable(
    (
        StoredColumn("id", BIGINT, "int8", nullable=False, comment="the order's"),
        StoredColumn("buyer", STRING, "text"),
        StoredColumn("price", decimal(10, 2), "numeric"),
    ),
    ("id",),
    options={"number-of-rows": "3"},
    comment="all 'orders'",
)
OUT = StoredTable((StoredColumn("id", BIGINT, "int8"), StoredColumn("buyer", STRING, "text")))
DATABASES: dict[str, dict[str, StoredTable]] = {
    "shop": {
        "orders": ORDERS,
        "s.out": OUT,
        "odd": StoredTable((StoredColumn("id", BIGINT, "int8"), StoredColumn("place", None, "geometry"))),
        "empty": StoredTable(()),
        "we`ird 'x'.\"y\" ☃": StoredTable(
            (StoredColumn("a`b 'c'", NESTED, "row"), StoredColumn("select", STRING, "text", comment="`it's`")),
            partition_keys=("select",),
            options={"o'k": "v'`v"},
        ),
    },
    "other": {"orders": OUT},
}
ASKED: list[str] = []
"""Questions, in order, and `close`."""


class ShopCatalog:
    """The tables above; its connector is `datagen`, that of tables called `…out` `print`."""

    def __init__(self, name: str, options: Options) -> None:
        self._name = name
        self._default = options.text("default-database")
        self._state = options.text("state")
        if self._state == "impossible":
            raise OptionError("state", "option 'state' cannot be 'impossible'", hint="be possible")

    @property
    def default_database(self) -> str:
        return self._default

    def _ask(self, question: str) -> None:
        ASKED.append(question)
        if self._state == "down":
            raise ConnectorError("the server is down", retryable=True, hint="wake it")

    def databases(self) -> Sequence[str]:
        self._ask("databases")
        return list(DATABASES)

    def tables(self, database: str) -> Sequence[str] | None:
        self._ask(f"tables {database}")
        return None if database not in DATABASES else list(DATABASES[database])

    def views(self, database: str) -> Sequence[str] | None:
        self._ask(f"views {database}")
        return None if database not in DATABASES else ["s.out"]

    def table(self, database: str, name: str) -> StoredTable | None:
        self._ask(f"table {database} {name}")
        return DATABASES.get(database, {}).get(name)

    def options_of(self, database: str, name: str) -> Mapping[str, str]:
        return {"connector": "print"} if name.endswith("out") else {"connector": "datagen"}

    def close(self) -> None:
        ASKED.append("close")


CATALOG_TYPE = CatalogType(
    name="shop",
    summary="A catalog of tests.",
    options=(
        Option("default-database", OptionType.STRING, "The database.", default="shop"),
        Option("state", OptionType.ENUM, "How it is.", default="up", choices=("up", "down", "impossible")),
        Option("token", OptionType.STRING, "A secret.", secret=True),
        Option("needed", OptionType.INT, "A number.", default=1),
    ),
    open=ShopCatalog,
    creates_tables=False,
)
CREATING_TYPE = CatalogType("maker", CATALOG_TYPE.summary, CATALOG_TYPE.options, ShopCatalog, creates_tables=True)


@contextmanager
def shop_catalogs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The types `shop` and `maker` are there, as if a package brought them; gives `ASKED`, empty."""
    module = __name__
    monkeypatch.setitem(catalogs.BUILT_IN, "shop", f"{module}:CATALOG_TYPE")
    monkeypatch.setitem(catalogs.BUILT_IN, "maker", f"{module}:CREATING_TYPE")
    catalogs._targets.cache_clear()
    ASKED.clear()
    yield ASKED
    catalogs._targets.cache_clear()
