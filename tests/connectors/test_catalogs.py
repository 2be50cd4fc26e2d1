"""The registry of kinds of catalogs, and what each of them promises."""

import pytest

from flowrun.connectors.catalogs import catalog_type_named, catalog_type_names
from flowrun.connectors.registry import connector_named
from flowrun.core.options import parse_options
from flowrun.errors import OptionError

GIVEN = {
    "iceberg": {"catalog-type": "sql", "uri": "sqlite:///c.db", "warehouse": "w", "catalog-secrets.s3.secret": "x"},
    "jdbc": {"base-url": "jdbc:postgresql://db", "default-database": "shop", "username": "me", "password": "secret"},
}


@pytest.mark.parametrize("name", catalog_type_names())
def test_the_tables_of_each_kind_have_options_that_their_connector_takes(name: str) -> None:
    kind = catalog_type_named(name)
    assert kind.name == name
    assert all(option.doc.endswith(".") for option in kind.options)
    options, problems = parse_options(kind.options, GIVEN[name], name)
    assert problems == []
    catalog = kind.open("c", options)
    given = dict(catalog.options_of("a database", "a table"))
    connector = connector_named(given.pop("connector"))
    for declared in (connector.source_options, connector.sink_options):
        known = [key for key in given if any(o.matches(key) for o in declared)]
        assert known == list(given)
        for option in declared:  # what is secret of the catalog is secret of its tables
            assert not any(option.matches(key) and not option.secret for key in given if given[key] in ("secret", "x"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("jdcb", "did you mean 'jdbc'?"),
        ("postgres", "'type' = 'jdbc'"),
        ("PostgreSQL", "'type' = 'jdbc'"),
        ("hive", "REST"),
        ("generic_in_memory", "default_catalog.default_database"),
    ],
)
def test_an_unknown_kind_brings_what_is_meant(name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=f"there is no catalog type '{name}'") as raised:
        catalog_type_named(name)
    assert hint in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"base-url": "jdbc:postgresql://db/shop"}, "'base-url' ends with the database 'shop'"),
        ({"base-url": "postgresql://db"}, "option 'base-url' expects jdbc:postgresql://host:port, got something else"),
        ({"base-url": "jdbc:duckdb:shop"}, "option 'base-url' expects jdbc:postgresql://host:port, got jdbc:duckdb:…"),
        ({"base-url": "jdbc:postgresql://db:port"}, "option 'base-url': 'port' is no port"),
        ({"base-url": "jdbc:postgresql://db/?sslmod=require"}, "has no parameter 'sslmod'"),
        ({"username": None}, "option 'password' needs option 'username'"),
    ],
)
def test_wrong_options_of_a_jdbc_catalog(changed: dict[str, str | None], message: str) -> None:
    kind = catalog_type_named("jdbc")
    given = {k: v for k, v in {**GIVEN["jdbc"], **changed}.items() if v is not None}
    options, problems = parse_options(kind.options, given, "jdbc")
    assert problems == []
    with pytest.raises(OptionError, match=message):
        kind.open("c", options)


@pytest.mark.parametrize(
    ("base_url", "database", "url"),
    [
        ("jdbc:postgresql://db:5433", "shop", "jdbc:postgresql://db:5433/shop"),
        ("jdbc:postgresql://db/", "a/b ü?", "jdbc:postgresql://db/a%2Fb%20%C3%BC%3F"),
        ("jdbc:postgresql://a,b/?sslmode=require", "shop", "jdbc:postgresql://a,b/shop?sslmode=require"),
    ],
)
def test_the_url_of_a_database(base_url: str, database: str, url: str) -> None:
    kind = catalog_type_named("jdbc")
    options, _ = parse_options(kind.options, {"base-url": base_url, "default-database": "shop"}, "jdbc")
    assert kind.open("c", options).options_of(database, "t") == {"connector": "jdbc", "url": url}
