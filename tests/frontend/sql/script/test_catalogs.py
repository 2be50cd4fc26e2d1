"""CREATE CATALOG and what follows from it, with a catalog in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrun.api.table_catalog import StoredColumn, StoredTable
from flowrun.core.types import BIGINT, STRING, array, map_of
from flowrun.frontend.pipeline import load_text
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.script.stored_tables import stored_syntax, stored_text
from flowrun.plan.nodes import Plan, Scan, walk_plan
from tests.frontend.sql.script.scripts import lines, load, plan_of, problems
from tests.frontend.sql.script.shop_catalog import DATABASES, NESTED, ORDERS, shop_catalogs

SHOP = "CREATE CATALOG c WITH ('type' = 'shop');\n"
MAKER = "CREATE CATALOG m WITH ('type' = 'maker');\n"
LOCAL = "CREATE TABLE orders (mine INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');\n"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with shop_catalogs(monkeypatch) as questions:
        yield questions


def scans(plan: Plan) -> list[Scan]:
    return [n for n in walk_plan(plan) if isinstance(n, Scan)]


def names(shown: str) -> list[str]:
    return [line.strip("| ") for line in shown.splitlines()[3:-2]]


# -- names ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "name", "columns"),
    [
        ("", "c.shop.orders", ["id", "buyer", "price"]),
        ("USE CATALOG c;", "orders", ["id", "buyer", "price"]),
        ("USE c.other;", "orders", ["id", "buyer"]),
        ("USE CATALOG c; USE other;", "orders", ["id", "buyer"]),
        ("USE CATALOG c; USE other;", "shop.orders", ["id", "buyer", "price"]),
        ("USE CATALOG c;", "default_catalog.default_database.orders", ["mine"]),
        ("USE CATALOG c; USE CATALOG default_catalog;", "orders", ["mine"]),
        ("USE CATALOG c; USE default_catalog.default_database;", "orders", ["mine"]),
        ("", "orders", ["mine"]),
    ],
)
def test_names_of_one_to_three_parts(before: str, name: str, columns: list[str]) -> None:
    plan = plan_of(SHOP + LOCAL + before + f"SELECT * FROM {name}")
    assert list(scans(plan)[0].schema.names) == columns
    assert plan.sinks[0].schema.names == tuple(columns)


def test_a_table_has_the_options_of_its_catalog_and_its_own() -> None:
    (scan,) = scans(plan_of(SHOP + "SELECT a.id FROM c.shop.orders AS a"))
    assert scan.table.name == "c.shop.orders"
    assert (scan.table.connector, scan.table.options) == ("datagen", {"number-of-rows": "3"})
    assert scan.table.primary_key == ("id",)
    assert [str(f) for f in scan.schema] == ["id BIGINT NOT NULL", "buyer STRING", "price DECIMAL(10, 2)"]
    assert str(scan.hints.location) == "s.sql:1:16"


def test_all_queries_share_one_scan_and_one_question(asked: list[str]) -> None:
    plan = plan_of(
        SHOP + "SELECT id FROM c.shop.orders; USE CATALOG c; SELECT o.buyer FROM orders o JOIN orders p ON o.id = p.id"
    )
    assert len({id(s) for s in scans(plan)}) == 1
    assert asked == ["table shop orders", "close"]


def test_a_catalog_that_nobody_needs_is_not_asked(asked: list[str]) -> None:
    load(SHOP + "USE CATALOG c; SHOW CURRENT DATABASE; SHOW CATALOGS; SHOW CREATE CATALOG c; DESCRIBE CATALOG c;")
    assert asked == ["close"]


def test_insert_writes_a_table_of_a_catalog() -> None:
    plan = plan_of(SHOP + "INSERT INTO c.shop.`s.out` SELECT id, buyer FROM c.shop.orders")
    assert (plan.sinks[0].table.connector, plan.sinks[0].table.name) == ("print", "c.shop.`s.out`")
    (sink,) = plan_of(SHOP + "INSERT INTO c.shop.`s.out` /*+ OPTIONS('print-identifier' = 'x') */ SELECT 1, 'a'").sinks
    assert sink.table.options["print-identifier"] == "x"


def test_hints_give_other_options() -> None:
    hinted = (
        "SELECT * FROM c.shop.orders /*+ OPTIONS('number-of-rows' = '9') */ AS a JOIN c.shop.orders AS b ON a.id = b.id"
    )
    rows = sorted(str(s.table.options["number-of-rows"]) for s in scans(plan_of(SHOP + hinted)))
    assert rows == ["3", "9"]
    assert "has no option 'number-of-row'" in problems(
        SHOP + "SELECT * FROM c.shop.orders /*+ OPTIONS('number-of-row' = '9') */"
    )


def test_like_takes_over_a_table_of_a_catalog() -> None:
    text = (
        "CREATE TABLE mine (twice AS id * 2) WITH ('number-of-rows' = '5') LIKE c.shop.orders; SHOW CREATE TABLE mine;"
    )
    (created,) = load(SHOP + text).outputs
    assert created == (
        "CREATE TABLE `mine` (\n  `id` BIGINT NOT NULL COMMENT 'the order''s',\n  `buyer` STRING,\n  `price` DECIMAL(10, 2),\n"
        "  `twice` AS id * 2,\n  PRIMARY KEY (`id`) NOT ENFORCED\n)\nCOMMENT 'all ''orders'''\n"
        "WITH (\n  'connector' = 'datagen',\n  'number-of-rows' = '5'\n)"
    )


def test_the_current_database_is_that_of_use() -> None:
    from flowrun.plan.explain import explain_plan

    for before, expected in (("", "default_database"), ("USE c.other;", "other")):
        assert f"'{expected}'" in explain_plan(plan_of(SHOP + before + "SELECT CURRENT_DATABASE() FROM c.shop.orders"))


# -- what a script declares in a catalog ---------------------------------------------------------------------------------------


def test_temporary_tables_and_views_hide_those_of_the_catalog(asked: list[str]) -> None:
    text = SHOP + "USE CATALOG c;\n" + LOCAL.replace("TABLE", "TEMPORARY TABLE", 1)
    text += "CREATE TEMPORARY VIEW `s.out` AS SELECT mine AS m FROM orders; SHOW TABLES; SHOW VIEWS; SHOW CREATE VIEW `s.out`;"
    loaded = load(text + "SELECT m FROM c.shop.`s.out`;")
    tables, views, created = loaded.outputs
    assert names(tables) == sorted(DATABASES["shop"])
    assert names(views) == ["s.out"]
    assert created == "CREATE TEMPORARY VIEW `c`.`shop`.`s.out` (`m`)\nAS SELECT mine AS m FROM orders"
    assert [s.table.name for s in scans(loaded.plan)] == ["c.shop.orders"]
    assert not [q for q in asked if q.startswith("table ")]


def test_what_was_hidden_is_seen_again_once_it_is_dropped() -> None:
    hidden = SHOP + "USE CATALOG c;\n" + LOCAL.replace("TABLE", "TEMPORARY TABLE", 1)
    plan = plan_of(hidden + "DROP TEMPORARY TABLE orders; SELECT * FROM orders;")
    assert plan.sinks[0].schema.names == ("id", "buyer", "price")


def test_a_catalog_that_takes_new_tables_says_their_options() -> None:
    text = MAKER + "USE CATALOG m; CREATE TABLE fresh (id INT) WITH ('number-of-rows' = '2'); SHOW CREATE TABLE fresh;"
    (created,) = load(text).outputs
    assert created.startswith("CREATE TABLE `m`.`shop`.`fresh` (\n  `id` INT\n)\nWITH (\n  'connector' = 'datagen',\n")
    plan = plan_of(MAKER + "CREATE TABLE m.other.copied_out AS SELECT id FROM m.shop.orders;")
    assert (plan.sinks[0].table.connector, plan.sinks[0].table.name) == ("print", "m.other.copied_out")
    wrong = problems(MAKER + "CREATE TABLE m.shop.t (a INT) WITH ('connector' = 'print')")
    assert "s.sql:2:37: error: catalog 'm' says which connector its tables have" in wrong


# -- SHOW, DESCRIBE, DROP ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SHOW CATALOGS", ["c", "default_catalog", "m"]),
        ("SHOW DATABASES", ["default_database"]),
        ("SHOW DATABASES FROM c", ["other", "shop"]),
        ("SHOW DATABASES IN c LIKE 'o%'", ["other"]),
        ("SHOW TABLES", []),
        ("SHOW TABLES FROM c.other", ["orders"]),
        ("SHOW TABLES IN c.shop LIKE '%o__e__'", ["orders"]),
        ("SHOW TABLES FROM c.shop NOT ILIKE '%E%'", ["odd", "s.out"]),
        ("SHOW VIEWS FROM c.shop", ["s.out"]),
        ("SHOW CURRENT CATALOG", ["default_catalog"]),
        ("USE c.other; SHOW CURRENT CATALOG", ["c"]),
        ("USE c.other; SHOW CURRENT DATABASE", ["other"]),
        ("USE CATALOG c; SHOW CURRENT DATABASE", ["shop"]),
        ("USE CATALOG c; SHOW DATABASES", ["other", "shop"]),
        ("USE CATALOG c; SHOW TABLES FROM other", ["orders"]),
        ("USE CATALOG c; SHOW TABLES FROM default_catalog.default_database", []),
        ("DROP CATALOG c; SHOW CATALOGS", ["default_catalog", "m"]),
        ("DROP CATALOG IF EXISTS nope; SHOW CATALOGS LIKE '_'", ["c", "m"]),
        ("CREATE CATALOG IF NOT EXISTS c WITH ('type' = 'nonsense'); SHOW CATALOGS LIKE '_'", ["c", "m"]),
        ("SHOW COLUMNS FROM c.other.orders", ["id", "buyer"]),
    ],
)
def test_show_lists_names(statement: str, expected: list[str]) -> None:
    (shown,) = load(SHOP + MAKER + statement).outputs
    assert [line.split(" | ")[0].strip("| ") for line in shown.splitlines()[3:-2]] == expected


def test_describe_and_show_create_of_a_table() -> None:
    described, created = load(SHOP + "DESCRIBE c.shop.orders; SHOW CREATE TABLE c.shop.orders;").outputs
    assert "|    id |         BIGINT | FALSE | PRI(id) |" in described
    assert created.startswith("CREATE TABLE `c`.`shop`.`orders` (\n  `id` BIGINT NOT NULL COMMENT 'the order''s',")


def test_a_dropped_catalog_may_be_made_anew_and_have_other_tables() -> None:
    text = (
        SHOP + "SELECT * FROM c.shop.orders; CREATE TEMPORARY TABLE c.shop.gone (a INT) WITH ('connector' = 'print');"
    )
    text += "DROP CATALOG c; CREATE CATALOG c WITH ('type' = 'shop', 'default-database' = 'other'); USE CATALOG c;"
    loaded = load(text + "SELECT * FROM orders; SHOW TABLES FROM shop LIKE 'gone';")
    assert [s.schema.names for s in loaded.plan.sinks] == [("id", "buyer", "price"), ("id", "buyer")]
    assert loaded.outputs == ("Empty set",)
    assert list(loaded.catalog_tables) == ["c.shop.orders", "`c#2`.other.orders"]


# -- errors --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("SELECT * FROM d.shop.orders", "2:15: error: catalog 'd' does not exist", "known: c, default_catalog"),
        ("SELECT * FROM c.shp.orders", "2:17: error: database 'shp' does not exist in catalog 'c'", "did you mean 'shop'?"),
        ("SELECT * FROM c.shop.order", "2:22: error: table 'order' does not exist in c.shop", "did you mean orders?"),
        ("SELECT * FROM c.shop.`out`", "2:22: error: table 'out' does not exist in c.shop", "did you mean `s.out`?"),
        ("SELECT * FROM c.shop.zzzzzz", "2:22: error: table 'zzzzzz' does not exist", "SHOW TABLES FROM c.shop"),
        ("USE CATALOG c; SELECT * FROM s.`out`", "2:30: error: database 's' does not exist", "as one name: `s.out`"),
        ("SELECT * FROM c.shop.s.`out`", "2:15: error: 'c.shop.s.out' has more parts", "c.shop.`s.out`"),
        ("SELECT * FROM c.shop.odd", "2:22: error: column 'place' of c.shop.odd is geometry", "CREATE TABLE"),
        ("SELECT * FROM c.shop.empty", "2:22: error: table c.shop.empty has no columns", ""),
        ("INSERT INTO c.shop.nope SELECT 1", "2:20: error: table 'nope' does not exist in c.shop", ""),
        ("INSERT INTO c.shop.orders SELECT 1, 'a', 2", "connector 'datagen' is no sink", "only be used as a source"),
        ("DESCRIBE c.shop.nope", "2:17: error: table 'nope' does not exist in c.shop", ""),
        ("SHOW CREATE VIEW c.shop.orders", "'c.shop.orders' is a table", "SHOW CREATE TABLE c.shop.orders"),
        ("SHOW TABLES FROM c.nope", "2:20: error: database 'nope' does not exist in catalog 'c'", ""),
        ("SHOW TABLES FROM nope", "2:18: error: database 'nope' does not exist in catalog 'default_catalog'", ""),
        ("SHOW DATABASES FROM nope", "2:21: error: catalog 'nope' does not exist", ""),
        ("SHOW TABLES FROM c.shop.orders", "expected a database, perhaps behind its catalog", ""),
        ("SHOW CREATE CATALOG nope", "2:21: error: catalog 'nope' does not exist", ""),
        ("DESCRIBE CATALOG nope", "2:18: error: catalog 'nope' does not exist", ""),
        ("USE CATALOG nope", "2:13: error: catalog 'nope' does not exist", "known: c, default_catalog"),
        ("USE c.nope", "2:7: error: database 'nope' does not exist in catalog 'c'", "known: other, shop"),
        ("USE CATALOG c; USE nope", "2:20: error: database 'nope' does not exist in catalog 'c'", ""),
        ("DROP CATALOG nope", "2:14: error: catalog 'nope' does not exist", "known: c, default_catalog"),
        ("DROP CATALOG default_catalog", "default_catalog cannot be dropped", ""),
        ("USE CATALOG c; DROP CATALOG c", "catalog 'c' is in use", "USE CATALOG default_catalog"),
        ("CREATE CATALOG c WITH ('type' = 'shop')", "2:16: error: catalog 'c' exists already in line 1", "DROP CATALOG c"),
        ("CREATE CATALOG default_catalog WITH ('type' = 'shop')", "catalog 'default_catalog' exists already", ""),
        ("CREATE CATALOG d WITH ('typ' = 'shop')", "the option 'type' is missing", "'type' = …"),
        ("CREATE CATALOG d WITH ('type' = 'shp')", "2:33: error: there is no catalog type 'shp'", "did you mean 'shop'?"),
        ("CREATE CATALOG d WITH ('type' = 'shop', 'tken' = '1')", "2:41: error: catalog type 'shop' has no option 'tken'", "'token'?"),
        ("CREATE CATALOG d WITH ('type' = 'shop', 'needed' = 'x')", "2:52: error: option 'needed' expects an integer", ""),
        ("CREATE CATALOG d WITH ('type' = 'shop', 'state' = 'impossible')", "2:51: error: option 'state' cannot be", "be possible"),
        ("CREATE TABLE c.shop.t (a INT) WITH ('connector' = 'print')", "2:21: error: catalog 'c' takes no new tables", "TEMPORARY TABLE"),
        ("CREATE VIEW c.shop.v AS SELECT 1", "2:20: error: catalog 'c' takes no new views", "TEMPORARY VIEW"),
        ("CREATE TEMPORARY TABLE d.shop.t (a INT) WITH ('connector' = 'print')", "catalog 'd' does not exist", ""),
        ("DROP TABLE c.shop.orders", "the script declares no table c.shop.orders", "drop it there"),
        ("USE CATALOG c; CREATE TEMPORARY TABLE t LIKE nope", "table 'nope' does not exist in c.shop", ""),
        ("CREATE TABLE t WITH ('connector' = 'print') LIKE c.shop.nope", "2:57: error: table 'nope' does not exist in c.shop", ""),
        ("CREATE DATABASE c.d", "CREATE DATABASE is not supported", ""),
        ("SELECT f(1) FROM c.shop.orders", "function 'f' does not exist", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_marked_and_has_a_remedy(text: str, message: str, hint: str) -> None:
    shown = problems(SHOP + text)
    assert message in shown
    assert hint in shown
    assert shown.count("error: ") == 1


def test_what_follows_from_a_wrong_catalog_is_not_reported() -> None:
    found = lines(
        "CREATE CATALOG c WITH ('type' = 'nonsense');\nSELECT * FROM c.shop.orders;\nUSE CATALOG c;\nSELECT * FROM orders;\n"
        "CREATE TEMPORARY VIEW v AS SELECT * FROM orders;\nSHOW TABLES;\nINSERT INTO c.shop.t SELECT 1;\nDROP CATALOG c;\n"
        "USE CATALOG default_catalog;\nSELECT nope;\n"
    )
    assert found == [
        "s.sql:1:33: error: there is no catalog type 'nonsense'",
        "s.sql:10:8: error: column 'nope' does not exist here: the query has no FROM",
    ]


def test_a_catalog_that_is_down_is_asked_once(asked: list[str]) -> None:
    found = problems(
        "CREATE CATALOG c WITH ('type' = 'shop', 'state' = 'down');\nSELECT * FROM c.shop.orders;\nSHOW TABLES FROM c.shop;\n"
        "USE c.shop;\nSELECT * FROM orders; INSERT INTO orders SELECT 1;\n"
    )
    assert found.count("error: ") == 1
    assert "s.sql:2:15: error: catalog 'c': the server is down" in found
    assert "hint: wake it" in found
    assert asked == ["table shop orders", "close"]


def test_connections_are_closed_where_a_script_is_wrong(asked: list[str]) -> None:
    problems(SHOP + "SELECT nope FROM c.shop.orders")
    assert asked[-1] == "close"


# -- secrets -------------------------------------------------------------------------------------------------------------------


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "user").write_text("u53r-of-file")
    text = "CREATE CATALOG c COMMENT 'it''s' WITH ('type' = 'shop', 'token' = 't0ken-in-text', 'needed' = '1');"
    text += "CREATE CATALOG d WITH ('type' = 'shop', 'default-database' = '${secret:file:user}');"
    loaded = load(
        text + "SHOW CREATE CATALOG c; DESCRIBE CATALOG c; SHOW CREATE CATALOG d; DESCRIBE CATALOG EXTENDED d;",
        tmp_path,
    )
    created, described, created_d, described_d = loaded.outputs
    assert (
        created
        == "CREATE CATALOG `c`\nCOMMENT 'it''s'\nWITH (\n  'type' = 'shop',\n  'token' = '***',\n  'needed' = '1'\n)"
    )
    assert "|       comment |       it's |" in described
    assert "u53r-of-file" not in created_d + described_d
    assert "t0ken-in-text" not in described
    wrong = problems("CREATE CATALOG c WITH ('type' = 'shop', 'state' = 't0ken-in-text', 'token' = 't0ken-in-text');")
    assert "t0ken-in-text" not in wrong.split("hint")[0].splitlines()[0]


# -- what is kept --------------------------------------------------------------------------------------------------------------


def test_who_loads_a_script_again_asks_no_catalog(asked: list[str]) -> None:
    text = (
        SHOP
        + "USE c.shop; SHOW TABLES; SHOW DATABASES FROM c; DESCRIBE orders; INSERT INTO `s.out` SELECT id, buyer FROM orders;"
    )
    first = load(text)
    assert set(first.catalog_tables) == {"c.shop.orders", "c.shop.`s.out`"}
    del asked[:]
    again = load_text(SourceText("s.sql", text), Path(), {}, {}, {}, catalog_tables=first.catalog_tables)
    assert asked == ["close"]
    assert again.catalog_tables == first.catalog_tables
    assert [s.table for s in scans(again.plan)] == [s.table for s in scans(first.plan)]
    assert [s.schema for s in scans(again.plan)] == [s.schema for s in scans(first.plan)]
    assert len(again.outputs) == 1  # of DESCRIBE: what catalogs list is not asked for again


def test_what_is_not_kept_is_asked_for(asked: list[str]) -> None:
    text = SourceText("s.sql", SHOP + "SELECT * FROM c.shop.orders")
    load_text(text, Path(), {}, {}, {}, catalog_tables={})
    assert asked == ["table shop orders", "close"]


def test_hostile_names_are_kept_as_they_are() -> None:
    (name,) = (n for n in DATABASES["shop"] if n.startswith("we"))
    quoted = "`" + name.replace("`", "``") + "`"
    loaded = load(SHOP + f"USE CATALOG c; DESCRIBE {quoted}; SHOW CREATE TABLE {quoted};")
    assert "a`b 'c'" in loaded.outputs[0]
    assert f"`c`.`shop`.{quoted}" in loaded.outputs[1]
    assert "`a``b 'c'` ROW<`a b` BIGINT NOT NULL, `c` STRING>" in loaded.outputs[1]
    assert "'o''k' = 'v''`v'" in loaded.outputs[1]


_NAMES = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=12)
_TYPES = st.recursive(
    st.sampled_from([BIGINT, STRING, NESTED]), lambda t: st.builds(array, t) | st.builds(map_of, t, t)
)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(_NAMES, _TYPES, st.booleans(), st.none() | _NAMES), min_size=1, max_size=5, unique_by=lambda c: c[0]
    ),
    _NAMES,
    st.dictionaries(_NAMES, _NAMES, max_size=3),
    st.none() | _NAMES,
)
def test_any_table_is_read_back_as_it_was_stored(
    columns: list[tuple[str, object, bool, str | None]], name: str, options: dict[str, str], comment: str | None
) -> None:
    made = tuple(StoredColumn(n, t, "any", nullable, note) for n, t, nullable, note in columns)  # type: ignore[arg-type]
    keys = tuple(c.name for c in made[:2])
    table = StoredTable(made, keys, keys[:1], options, comment)
    read = stored_syntax(stored_text(name, table), (3, 5))
    assert [c.name.text for c in read.columns] == [c.name for c in made]
    assert [(c.nullable, c.comment) for c in read.columns] == [(c.nullable, c.comment) for c in made]
    assert read.name[0].text == name
    assert read.primary_key is not None
    assert tuple(n.text for n in read.primary_key.columns) == keys
    assert tuple(n.text for n in read.partitions) == keys[:1]
    assert {o.key: o.value for o in read.options} == options
    assert read.comment == comment


def test_orders_are_kept_as_a_statement() -> None:
    assert stored_text("orders", ORDERS) == (
        "CREATE TABLE `orders` (`id` BIGINT NOT NULL COMMENT 'the order''s', `buyer` STRING, `price` DECIMAL(10, 2), "
        "PRIMARY KEY (`id`) NOT ENFORCED) COMMENT 'all ''orders''' WITH ('number-of-rows' = '3')"
    )
