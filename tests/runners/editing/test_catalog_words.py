"""Names in catalogs are proposed as they become known, and nobody waits for a server that is slow or gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from flowrun.api.table_catalog import StoredColumn, StoredTable
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import ConnectorError
from flowrun.frontend.sql.script.known_catalogs import KnownCatalog, KnownCatalogs
from flowrun.runners.editing.analysis import Analysis, analyse
from flowrun.runners.editing.asked_catalogs import AskedCatalogs
from flowrun.runners.editing.catalog_words import CatalogWords
from flowrun.runners.editing.meaning import about
from flowrun.runners.editing.sql_words import sql_proposals
from flowrun.runners.sql_session import SqlSession
from tests.frontend.sql.script.shop_catalog import shop_catalogs

ALL_S = 60.0


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    monkeypatch.chdir(tmp_path)
    with shop_catalogs(monkeypatch) as questions:
        yield questions


class Server:
    """A catalog with a table `t`, that answers only once it may."""

    default_database = "d"

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked: list[str] = []
        self.is_gone = False
        self.known = KnownCatalog((("number", str(id(self))),), lambda: self)

    def _ask(self, question: str) -> None:
        self.asked.append(question)
        assert self.may_answer.wait(ALL_S)
        if self.is_gone:
            raise ConnectorError("gone", retryable=True)

    def databases(self) -> Sequence[str]:
        self._ask("databases")
        return ["d"]

    def tables(self, database: str) -> Sequence[str] | None:
        self._ask(f"tables {database}")
        return ["t"]

    def views(self, database: str) -> Sequence[str] | None:
        raise NotImplementedError

    def table(self, database: str, name: str) -> StoredTable | None:
        self._ask(f"table {database} {name}")
        return StoredTable((StoredColumn("id", BIGINT, "int8"), StoredColumn("place", None, "geometry")))

    def options_of(self, database: str, name: str) -> Mapping[str, str]:
        raise NotImplementedError

    def close(self) -> None:
        self.asked.append("close")


def settled(asked: AskedCatalogs) -> None:
    """Wait until all answers are there."""
    with asked._changed:
        assert asked._changed.wait_for(lambda: not asked._asked, ALL_S)


def words(
    known: KnownCatalogs, asked: AskedCatalogs, text: str, tables: Mapping[str, Schema] | None = None
) -> list[str]:
    before, _, after = text.partition("|")
    found = sql_proposals(before, after, tables or {}, catalogs=CatalogWords(known, asked))
    return [p.text for p in found if p.kind in ("catalog", "database", "table", "column")]


def known_by(*statements: str) -> KnownCatalogs:
    session = SqlSession({"TOKEN": "s3cret"}, {})
    for statement in statements:
        session.compile(statement)
    return session.catalogs


CREATE = "CREATE CATALOG c WITH ('type' = 'shop', 'token' = '${TOKEN}')"


def test_a_session_knows_its_catalogs_without_asking_them(shop: list[str]) -> None:
    known = known_by(CREATE, "CREATE CATALOG d WITH ('type' = 'maker')", "USE CATALOG c", "DROP CATALOG d")
    assert (list(known.catalogs), known.current) == (["c"], ("c", "shop"))
    assert dict(known.catalogs["c"].options)["token"] == "s3cret"
    assert "s3cret" not in repr(known)
    assert set(shop) == {"close"}
    assert known_by(CREATE, "USE c.other").current == ("c", "other")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT * FROM |", ["mine", "c", "default_catalog"]),
        ("USE CATALOG |", ["c", "default_catalog"]),
        ("SELECT * FROM c.|", ["shop", "other"]),
        ("SELECT * FROM c.sh|", ["shop"]),
        ("USE c.o|", ["other"]),
        ("SELECT * FROM c.shop.|", ["orders", "`s.out`", "odd", "empty", "`we``ird 'x'.\"y\" ☃`"]),
        ("SELECT * FROM c.shop.or|", ["orders"]),
        ("SELECT * FROM c.shop.ou|", ["`s.out`"]),
        ("SELECT * FROM c.shop.`s.o|", ["`s.out`"]),
        ("INSERT INTO `c`.`other`.o|", ["orders"]),
        ("SELECT * FROM mine, c.shop.or|", ["orders"]),
        ("SELECT * FROM nothing.|", []),
        ("SELECT o.| FROM c.shop.orders AS o", ["id", "buyer", "price"]),
        ("SELECT pr| FROM c.shop.orders", ["price"]),
        ("SELECT orders.pr| FROM c.shop.orders", ["price"]),
        ("SELECT x.b| FROM mine JOIN c.shop.`s.out` x ON TRUE", ["buyer"]),
        ("SELECT pl| FROM c.shop.odd", ["place"]),
        ("SELECT zz| FROM c.shop.orders", []),
        ("SELECT 'c.|", []),
    ],
)
def test_names_and_columns_of_catalogs(text: str, wanted: list[str]) -> None:
    known, asked = known_by(CREATE), AskedCatalogs()
    tables = {"mine": Schema.of(n=BIGINT)}
    for _ in range(2):  # a table that is named by its columns may be asked for once its database is known
        words(known, asked, text, tables)
        settled(asked)
    assert words(known, asked, text, tables) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT * FROM o|", ["orders", "odd", "`s.out`", "other"]),
        ("SELECT * FROM other.|", ["orders"]),
        ("SELECT b| FROM orders", ["buyer"]),
        ("SELECT o.b| FROM other.orders o", ["buyer"]),
        ("SELECT o.pr| FROM other.orders o", []),
    ],
)
def test_names_in_the_catalog_that_is_used(text: str, wanted: list[str]) -> None:
    known, asked = known_by(CREATE, "USE CATALOG c"), AskedCatalogs()
    for _ in range(3):
        words(known, asked, text)
        settled(asked)
    assert words(known, asked, text) == wanted


def test_a_table_that_the_script_declares_hides_that_of_the_catalog() -> None:
    known, asked = known_by(CREATE, "USE CATALOG c"), AskedCatalogs()
    mine = {"orders": Schema.of(only=STRING)}
    for _ in range(3):
        words(known, asked, "SELECT o| FROM orders", mine)
        settled(asked)
    assert words(known, asked, "SELECT o| FROM orders", mine) == ["only", "orders"]


def hover(known: KnownCatalogs, asked: AskedCatalogs, text: str) -> str | None:
    before, _, after = text.partition("|")
    line = before.count("\n")
    place = len(before.rpartition("\n")[2])
    return about(Path("job.sql"), before + after, line, place, Analysis(), CatalogWords(known, asked))


@pytest.mark.parametrize(
    ("used", "text", "wanted"),
    [
        ((), "SELECT * FROM c.shop.or|ders", "**c.shop.orders**\n```sql\nid BIGINT\n"),
        ((), "SELECT *\nFROM c.shop.`s.|out`", "buyer STRING"),
        ((), "SELECT o.pr|ice FROM c.shop.orders AS o", "```sql\nprice DECIMAL"),
        (("USE CATALOG c",), "SELECT 1; SELECT * FROM or|ders; SELECT 2", "price DECIMAL"),
        (("USE CATALOG c",), "SELECT * FROM other.or|ders", "buyer STRING"),
        ((), "SELECT * FROM c.shop.no|thing", None),
        ((), "SELECT 1 FROM or|ders", None),
    ],
)
def test_tables_of_catalogs_and_their_columns_are_explained(
    used: tuple[str, ...], text: str, wanted: str | None
) -> None:
    known, asked = known_by(CREATE, *used), AskedCatalogs()
    for _ in range(3):
        hover(known, asked, text)
        settled(asked)
    said = hover(known, asked, text)
    assert (said is None) == (wanted is None), said
    assert wanted is None or wanted in str(said)


def test_who_hovers_does_not_wait_for_a_server_that_is_slow() -> None:
    server = Server()
    asked = AskedCatalogs()
    try:
        assert hover(KnownCatalogs({"slow": server.known}), asked, "SELECT * FROM slow.d.t|") is None
    finally:
        server.may_answer.set()
    settled(asked)
    assert "id BIGINT" in str(hover(KnownCatalogs({"slow": server.known}), asked, "SELECT * FROM slow.d.t|"))


def test_who_writes_does_not_wait_for_a_server_that_is_slow() -> None:
    slow, quick = Server(), Server()
    quick.may_answer.set()
    known, asked = KnownCatalogs({"slow": slow.known, "quick": quick.known}), AskedCatalogs()
    try:
        assert words(known, asked, "SELECT * FROM slow.d.|") == []
        assert words(known, asked, "SELECT * FROM slow.d.|") == []
        assert asked.is_waiting
        words(known, asked, "SELECT * FROM quick.d.|")
        with asked._changed:
            assert asked._changed.wait_for(lambda: len(asked._asked) == 1, ALL_S)
        assert words(known, asked, "SELECT * FROM quick.d.|") == ["t"]
        asked.settle(0.0)
    finally:
        slow.may_answer.set()
    settled(asked)
    assert words(known, asked, "SELECT * FROM slow.d.|") == ["t"]
    assert slow.asked == ["tables d"]  # once
    assert not asked.is_waiting


def test_a_question_that_takes_long_is_not_waited_for_again() -> None:
    times = [0.0]
    server = Server()
    asked = AskedCatalogs(lambda: times[0])
    try:
        asked.databases(server.known)
        assert asked.is_waiting
        times[0] = 10.0
        assert not asked.is_waiting
        asked.settle(ALL_S)  # at once
    finally:
        server.may_answer.set()
    settled(asked)


def test_answers_are_asked_for_anew_after_a_while_and_shown_meanwhile() -> None:
    times = [0.0]
    server = Server()
    server.may_answer.set()
    asked = AskedCatalogs(lambda: times[0])
    asked.databases(server.known)
    settled(asked)
    assert asked.databases(server.known) == ["d"]
    assert server.asked == ["databases"]
    times[0] = 1000.0
    server.is_gone = True
    assert asked.databases(server.known) == ["d"]
    settled(asked)
    assert server.asked == ["databases", "databases"]
    assert asked.databases(server.known) == ["d"]  # which is better than nothing
    assert server.asked == ["databases", "databases"]  # what is gone is left alone for a while
    assert asked.tables(server.known, "d") == ()


def test_a_script_in_an_editor_knows_its_catalogs_though_it_is_wrong() -> None:
    text = "CREATE CATALOG c WITH ('type' = 'shop');\nUSE CATALOG c;\nSELECT nothing FROM"
    found = analyse(Path("job.sql"), text)
    assert not found.is_right
    assert (list(found.catalogs.catalogs), found.catalogs.current) == (["c"], ("c", "shop"))
    assert analyse(Path("job.sql"), "CREATE CATALOG c WITH ('type' = 'shp')").catalogs == KnownCatalogs()
