"""What a catalog of a real PostgreSQL says of its databases, tables and columns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowrun.api.table_catalog import StoredTable, TableCatalog
from flowrun.connectors.catalogs import catalog_type_named
from flowrun.connectors.jdbc.address import parse_address
from flowrun.connectors.jdbc.postgres.catalog_queries import relation_names
from flowrun.connectors.jdbc.postgres.columns import expression
from flowrun.connectors.jdbc.postgres.writing import PostgresWriter
from flowrun.connectors.jdbc.relation import Access
from flowrun.core.options import parse_options
from flowrun.errors import ConnectorError
from tests.servers.postgres import PostgresDatabase, PostgresServer

pytestmark = pytest.mark.exhaustive


def opened(database: PostgresDatabase, **more: str) -> TableCatalog:
    kind = catalog_type_named("jdbc")
    given = {
        "base-url": database.jdbc_url.rpartition("/")[0],
        "default-database": database.name,
        "username": database.user,
        "password": database.password,
        **more,
    }
    options, problems = parse_options(kind.options, given, "catalog")
    assert problems == []
    return kind.open("pg", options)


@pytest.fixture
def catalog(postgres: PostgresDatabase) -> Iterator[TableCatalog]:
    made = opened(postgres)
    yield made
    made.close()


def table(catalog: TableCatalog, database: PostgresDatabase, name: str) -> StoredTable:
    found = catalog.table(database.name, name)
    assert found is not None
    return found


TYPES = {
    "smallint": "SMALLINT",
    "integer": "INT",
    "bigserial": "BIGINT",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "numeric(12,4)": "DECIMAL(12, 4)",
    "numeric": "DECIMAL(38, 18)",
    "numeric(40,2)": "DECIMAL(38, 0)",
    "numeric(38,30)": "DECIMAL(38, 30)",
    "numeric(5,-2)": "DECIMAL(7, 0)",
    "numeric(3,5)": "DECIMAL(5, 5)",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "time": "TIME(6)",
    "time(3)": "TIME(3)",
    "timestamp(3)": "TIMESTAMP(3)",
    "timestamp": "TIMESTAMP(6)",
    "timestamptz": "TIMESTAMP_LTZ(6)",
    "timestamptz(0)": "TIMESTAMP_LTZ(0)",
    "timetz": "STRING",
    "bytea": "BYTES",
    "text": "STRING",
    "varchar": "STRING",
    "varchar(7)": "VARCHAR(7)",
    "char(3)": "CHAR(3)",
    '"char"': "STRING",
    "uuid": "STRING",
    "jsonb": "STRING",
    "interval": "STRING",
    "inet": "STRING",
    "int4range": "STRING",
    "point": "STRING",
    "mood": "STRING",
    "money": "STRING",
    "bit(3)": "STRING",
    "positive": "INT",
    "digits": "DECIMAL(6, 2)",
    "integer[]": "ARRAY<INT>",
    "numeric(6,2)[]": "ARRAY<DECIMAL(6, 2)>",
    "mood[]": "ARRAY<STRING>",
    "integer[][]": "STRING",
    "int4": "INT",
}


def test_every_type_has_one_here_and_can_be_read_as_it(postgres: PostgresDatabase, catalog: TableCatalog) -> None:
    postgres.execute("CREATE TYPE mood AS ENUM ('glad')")
    postgres.execute("CREATE DOMAIN positive AS int CHECK (value > 0); CREATE DOMAIN digits AS numeric(6,2) NOT NULL")
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(TYPES))
    postgres.execute(f"CREATE TABLE every ({columns})")
    found = table(catalog, postgres, "every")
    assert dict(zip(TYPES, (str(c.type) for c in found.columns), strict=True)) == TYPES
    not_null = [kind for kind, column in zip(TYPES, found.columns, strict=True) if not column.nullable]
    assert not_null == ["bigserial", "digits"]
    access = Access(parse_address(postgres.jdbc_url), "every", postgres.user, postgres.password)
    writer = PostgresWriter(access)
    try:
        relation = writer.describe()
    finally:
        writer.close()
    for column in found.columns:
        assert column.type is not None
        expression(relation.column(column.name), column.type)


def test_a_type_of_a_built_in_name_in_another_schema_is_not_taken_for_it(
    postgres: PostgresDatabase, catalog: TableCatalog
) -> None:
    postgres.execute("CREATE SCHEMA s; CREATE TYPE s.int8 AS ENUM ('a'); CREATE TABLE t (a s.int8, b pg_catalog.int8)")
    assert [str(c.type) for c in table(catalog, postgres, "t").columns] == ["STRING", "BIGINT"]


def test_keys_and_comments(postgres: PostgresDatabase, catalog: TableCatalog) -> None:
    postgres.execute("CREATE TABLE t (a int, b int, c int, PRIMARY KEY (c, a) INCLUDE (b))")
    postgres.execute("CREATE TABLE late (a int PRIMARY KEY DEFERRABLE); CREATE TABLE u (a int UNIQUE)")
    postgres.execute("CREATE TABLE parts (a int PRIMARY KEY) PARTITION BY RANGE (a)")
    postgres.execute("CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (9)")
    postgres.execute("COMMENT ON TABLE t IS 'the ''t'''; COMMENT ON COLUMN t.b IS 'b';")
    assert table(catalog, postgres, "t").primary_key == ("c", "a")
    assert (table(catalog, postgres, "t").comment, table(catalog, postgres, "t").columns[1].comment) == ("the 't'", "b")
    assert table(catalog, postgres, "late").primary_key == ()  # ON CONFLICT does not go by it
    assert table(catalog, postgres, "u").primary_key == ()
    assert table(catalog, postgres, "parts").primary_key == ("a",)
    assert catalog.tables(postgres.name) == ["public.t", "public.late", "public.u", "public.parts"]
    assert table(catalog, postgres, "part").primary_key == ("a",)


HOSTILE = [
    "a.b",
    'q"uo"te',
    "it's",
    "Ünïcode ☃",
    "UPPER",
    "upper",
    "per%cent",
    "back\\slash",
    "a.b.c",
    " ",
    "new\nline",
]


def test_names_are_what_they_are(postgres: PostgresDatabase, catalog: TableCatalog) -> None:
    for schema in ("public", "x.y", "A"):
        quoted = '"' + schema + '"'
        postgres.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted}")
        for name in HOSTILE:
            doubled = name.replace('"', '""')
            postgres.execute(f'CREATE TABLE {quoted}."{doubled}" ("{schema}" int, "{doubled}" int)')
    listed = catalog.tables(postgres.name)
    assert listed is not None
    assert set(listed) == {f"{schema}.{name}" for schema in ("public", "x.y", "A") for name in HOSTILE}
    for schema in ("public", "x.y", "A"):
        for name in HOSTILE:
            assert [c.name for c in table(catalog, postgres, f"{schema}.{name}").columns] == [schema, name]
    for name in HOSTILE:
        assert [c.name for c in table(catalog, postgres, name).columns] == ["public", name]
    for name in ("Upper", "public.Upper", "", ".", "public.", "a\0b", "nothing'; DROP TABLE t; --", "pg_catalog"):
        assert catalog.table(postgres.name, name) is None


def test_views_and_what_a_user_may_not_see(postgres: PostgresDatabase, postgres_server: PostgresServer) -> None:
    user = f"reader_{postgres.name}"
    postgres.execute(f"CREATE USER {user} PASSWORD 'pw-of-reader'")
    try:
        postgres.execute("CREATE TABLE open (a int); CREATE TABLE closed (a int); CREATE VIEW seen AS SELECT 1 AS a")
        postgres.execute("CREATE SCHEMA hidden; CREATE TABLE hidden.t (a int)")
        postgres.execute(f"GRANT SELECT ON open, seen, hidden.t TO {user}")
        catalog = opened(postgres, username=user, password="pw-of-reader")
        assert catalog.tables(postgres.name) == ["public.open", "public.seen"]
        assert catalog.views(postgres.name) == ["public.seen"]
        assert catalog.table(postgres.name, "hidden.t") is None
        assert postgres.name in catalog.databases()
        assert not {"template0", "template1"} & set(catalog.databases())
        catalog.close()
    finally:
        postgres.execute(f"DROP OWNED BY {user}; DROP USER {user}")


def test_other_databases_and_default_schemas(postgres: PostgresDatabase, postgres_server: PostgresServer) -> None:
    catalog = opened(postgres, **{"default-database": "postgres"})
    postgres.execute("CREATE SCHEMA s; CREATE TABLE s.t (a int); CREATE TABLE t (b int)")
    assert [c.name for c in table(catalog, postgres, "t").columns] == ["b"]
    assert catalog.tables("there-is-none") is None
    assert catalog.table("there-is-none", "t") is None
    catalog.close()
    base = postgres.jdbc_url.rpartition("/")[0] + "/?currentSchema=s"
    other = opened(postgres, **{"base-url": base})
    assert [c.name for c in table(other, postgres, "t").columns] == ["a"]
    other.close()


def test_many_tables_are_listed_by_one_query(postgres: PostgresDatabase) -> None:
    postgres.execute("DO $$ BEGIN FOR i IN 1..1000 LOOP EXECUTE format('CREATE TABLE t%s ()', i); END LOOP; END $$")
    asked: list[str] = []
    with postgres.connect() as connection:

        def run(query: str) -> list[tuple[object, ...]]:
            asked.append(query)
            return list(connection.execute(query).fetchall())

        assert len(relation_names(run)) == 1000
    assert len(asked) == 1


def test_a_server_that_hangs_is_given_up(postgres: PostgresDatabase, postgres_server: PostgresServer) -> None:
    catalog = opened(postgres, **{"connection.max-retry-timeout": "1 s"})
    assert catalog.tables(postgres.name) == []
    postgres_server.hang()
    try:
        with pytest.raises(ConnectorError, match="did not answer for 1 s"):
            catalog.tables(postgres.name)
        catalog.close()
    finally:
        postgres_server.go_on()


def test_a_wrong_password_names_the_options_of_the_catalog(postgres: PostgresDatabase) -> None:
    catalog = opened(postgres, password="not-the-password")
    with pytest.raises(ConnectorError, match="authentication failed") as raised:
        catalog.databases()
    assert "'base-url', 'default-database', 'username' and 'password'" in str(raised.value)
    assert "not-the-password" not in str(raised.value)
    catalog.close()
