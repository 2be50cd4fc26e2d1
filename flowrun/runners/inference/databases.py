"""Samples of tables of databases: `postgresql://HOST/DATABASE/TABLE`, and `FILE/TABLE` of SQLite and DuckDB."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast
from urllib.parse import parse_qsl, quote, unquote, urlencode

from flowrun.api.table_catalog import StoredTable
from flowrun.connectors.jdbc.address import parse_address
from flowrun.connectors.jdbc.postgres.catalog_queries import relation_names, stored_table, why_no_changes
from flowrun.connectors.jdbc.postgres.describing import Run
from flowrun.connectors.jdbc.quoting import name_parts
from flowrun.connectors.jdbc.relation import Access
from flowrun.connectors.jdbc.undeclared import first_rows, kind_of_file, table_in_file, table_names_in_file
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import STRING, DataType
from flowrun.errors import ConnectorError, DataError, OptionError, PipelineError, did_you_mean
from flowrun.masking import learn_secret
from flowrun.runners.inference.given_options import TableOptions, table_options
from flowrun.runners.inference.sample import Asked, Row, Sample, name_for
from flowrun.runners.inference.value_types import type_of

SCHEMES = ("postgresql", "postgres")
_FORM = "postgresql://USER@HOST:PORT/DATABASE/TABLE"
_MOST_NAMES = 20
_PARAMETERS_OF_A_LOGIN = ("user", "password")
_PORT = "5432"


# ---- PostgreSQL


@record(eq=False)
class _Place:
    """A table of a server. `table`: empty, if none is named. `login`: what the URI says of user and password."""

    hosts: str
    database: str
    table: str
    query: str
    login: Mapping[str, str]

    @property
    def url(self) -> str:
        """For the connector, without a login."""
        return f"jdbc:postgresql://{self.hosts}/{quote(self.database, '')}" + (f"?{self.query}" if self.query else "")

    @property
    def shown(self) -> str:
        return f"postgresql://{self.hosts}/{self.database}"


def sample_postgres(asked: Asked) -> Sample:
    """A sample of a table, read by the connector `jdbc` or, with its changes, by `postgres-cdc`.

    Args:
        asked: about `postgresql://USER@HOST:PORT/DATABASE/TABLE`; a password comes from there, an option or PGPASSWORD.

    Raises:
        ConnectorError: the server does not answer or refuses, or there is no such table.
        PipelineError: no table is named, its changes cannot be read, or an option is wrong.
    """
    place = _place(asked.place)
    own = {"url": place.url, "table-name": place.table or "?", **_login(place, asked)}
    of_server = {n: v for n, v in asked.options.items() if n in ("username", "password")}
    reached = table_options(replace(asked, options=of_server), "jdbc", None, own)
    access = _access(reached)
    with _asking(access) as run:
        stored, schema_name, table_name = _stored(place, access, run)
        quoted = stored.options["table-name"]
        why_not = "it has no primary key" if not stored.primary_key else why_no_changes(quoted, run)
    if asked.changes and why_not is not None:
        raise PipelineError.of(f"the changes of table {quoted} cannot be read: {why_not}", "leave --changes out")
    if asked.changes:  # arrays come as texts in the log
        stored = replace(stored, columns=tuple(replace(c, type=_of_log(c.type)) for c in stored.columns))
    stored, rows, odd = _looked_at(replace(access, table=quoted), stored, asked.rows)
    if asked.changes:
        connector, options = "postgres-cdc", _of_changes(asked, place, own, schema_name, table_name)
        remarks = [
            "The job keeps a replication slot on the server: drop it when the pipeline is given up (docs/connectors/postgres-cdc.md)."
        ]
    else:
        name = f"{schema_name}.{table_name}" if _is_plain(schema_name) and _is_plain(table_name) else quoted
        connector, options = "jdbc", table_options(asked, "jdbc", None, {**own, "table-name": name})
        more = (
            "`--changes` declares it so that its changes are read, too"
            if why_not is None
            else f"its changes cannot be read: {why_not}"
        )
        remarks = [f"The rows are read that are there when the job begins; {more}."]
    where = f"{place.shown}/{schema_name}.{table_name}"
    return _sample(where, table_name, connector, options, stored, rows, [*remarks, *odd])


def _place(text: str) -> _Place:
    rest, _, query = text.partition("://")[2].partition("?")
    where, _, path = rest.partition("/")
    user_info, at, hosts = where.rpartition("@")
    user, colon, password = user_info.partition(":")
    login = {"username": unquote(user)} if at and user else {}
    if colon:
        login["password"] = unquote(password)
    given = parse_qsl(query, keep_blank_values=True)
    login |= {"username" if n == "user" else n: v for n, v in given if n in _PARAMETERS_OF_A_LOGIN}
    if "password" in login:
        learn_secret(login["password"])
    database, _, table = path.partition("/")
    if not hosts or not database:
        raise PipelineError.of(f"'{text.partition('://')[0]}://…' names no database", _FORM)
    others = urlencode([(n, v) for n, v in given if n not in _PARAMETERS_OF_A_LOGIN])
    return _Place(hosts, unquote(database), unquote(table), others, login)


def _login(place: _Place, asked: Asked) -> dict[str, str]:
    """The user and password that count, as libpq finds them; no password: the server may need none, or `~/.pgpass` has it."""
    login, environment = dict(place.login), asked.environment
    if "password" not in login and "password" not in asked.options and environment.get("PGPASSWORD"):
        login["password"] = environment["PGPASSWORD"]
    if "username" not in login and "username" not in asked.options:
        login = {"username": environment.get("PGUSER") or getpass.getuser(), **login}
    return login


def _access(options: TableOptions) -> Access:
    try:
        address = parse_address(options.values.text("url"))
    except OptionError as error:
        raise PipelineError.of(error.message, error.hint) from None
    user, password = (cast("str | None", options.values.get(n)) for n in ("username", "password"))
    access = Access(address, options.values.text("table-name"), user, password)
    access.learn_secrets()
    return access


@contextmanager
def _asking(access: Access) -> Iterator[Run]:
    """Runs queries over one connection."""
    # Imported here: it needs the client library.
    from flowrun.connectors.jdbc.postgres.writing import PostgresWriter

    connection = PostgresWriter(access)
    try:
        yield connection.rows
    finally:
        connection.close()


def _stored(place: _Place, access: Access, run: Run) -> tuple[StoredTable, str, str]:
    """(the table, its schema, its name)."""
    schema = (access.address.schema or "public").split(",")[0].strip().strip('"')
    found = stored_table(place.table, schema, run) if place.table else None
    if found is None and place.table.lower() != place.table:
        found = stored_table(place.table.lower(), schema, run)
    if found is None:
        raise _which(place.shown, place.table, [n.removeprefix("public.") for n in relation_names(run)])
    schema_name, table_name = name_parts(found.options["table-name"])
    return found, schema_name, table_name


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[a-z_][a-z0-9_]*", name) is not None


def _of_log(type: DataType | None) -> DataType | None:
    return STRING if type is not None and type.is_nested else type


def _of_changes(asked: Asked, place: _Place, own: Mapping[str, str], schema_name: str, table_name: str) -> TableOptions:
    """The options of `postgres-cdc`."""
    if place.query or "," in place.hosts:
        raise PipelineError.of(
            "postgres-cdc connects to one server, and takes no parameters of a URL", f"{_FORM}, without a question mark"
        )
    host, _, port = place.hosts.rpartition(":") if re.search(r":\d+$", place.hosts) else (place.hosts, "", _PORT)
    slot = re.sub(r"[^a-z0-9_]", "_", f"flowrun_{table_name.lower()}")[:55]
    options = {
        "hostname": host.strip("[]"),
        "port": port,
        "database-name": place.database,
        "schema-name": schema_name,
        "table-name": table_name,
        **{n: own[n] for n in ("username", "password") if n in own},
        "slot.name": slot,
    }
    return table_options(asked, "postgres-cdc", None, options)


# ---- files


def database_file(place: str) -> tuple[Path, str, str] | None:
    """(file, scheme, table) of a place `FILE` or `FILE/TABLE`; None: it is no file of a database."""
    path = Path(place)
    for file in (path, path.parent):
        if not file.is_file():  # to read a pipe would take its data
            continue
        try:
            with file.open("rb") as opened:
                scheme = kind_of_file(opened.read(16))
        except OSError:
            continue
        return None if scheme is None else (file, scheme, "" if file == path else path.name)
    return None


def sample_database_file(asked: Asked, file: Path, scheme: str, table: str) -> Sample:
    """A sample of a table of a file.

    Raises:
        ConnectorError: the file cannot be read, or has no such table.
        PipelineError: no table is named and there are several, or an option is wrong.
        SetupError: the client library is not installed.
    """
    if asked.changes:
        raise PipelineError.of(
            f"'{file}' is a file, whose changes nobody tells", "--changes is for tables of PostgreSQL"
        )
    suffix = ";access_mode=READ_ONLY" if scheme == "duckdb" else ""
    access = Access(parse_address(f"jdbc:{scheme}:{file}{suffix}"), table)
    if not table:
        names = table_names_in_file(access)
        if len(names) != 1:
            raise _which(str(file), "", names)
        access = replace(access, table=names[0])
    stored, rows, odd = _looked_at(access, table_in_file(access, asked.rows), asked.rows)
    if scheme == "sqlite":  # which has no type for times: they are texts
        stored = replace(
            stored, columns=tuple(replace(c, type=_with_times(c.name, c.type, rows)) for c in stored.columns)
        )
        stored, rows, more = _looked_at(access, stored, asked.rows)
        odd += more
    own = {"url": f"jdbc:{scheme}:{asked.written_path(str(file))}{suffix}", "table-name": stored.options["table-name"]}
    options = table_options(asked, "jdbc", None, own)
    remarks = ["The rows are read that are there when the job begins.", *odd]
    return _sample(f"{file}/{access.table}", access.table, "jdbc", options, stored, rows, remarks)


def _with_times(name: str, type: DataType | None, rows: Sequence[Row]) -> DataType | None:
    """DATE or TIMESTAMP for a column whose texts all are such."""
    texts = [r[name] for r in rows if r[name] is not None]
    return type_of(texts)[0] if type == STRING and texts else type


# ---- both


def _which(where: str, table: str, names: Sequence[str]) -> PipelineError | ConnectorError:
    """The error of a table that is not named, or not there."""
    listed = ", ".join(sorted(names)[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    if not names:
        return ConnectorError(f"there is no table in '{where}' that the user may read")
    if not table:
        return PipelineError.of(
            f"'{where}' is a database: which of its tables is meant?", f"{where}/TABLE; there are: {listed}"
        )
    return ConnectorError(
        f"there is no table '{table}' in '{where}'", hint=did_you_mean(table, names) or f"there are: {listed}"
    )


def _fields(stored: StoredTable) -> tuple[Field, ...]:
    fields = []
    for column in stored.columns:
        assert column.type is not None  # databases have a text for each value
        fields.append(Field(column.name, column.type))
    return tuple(fields)


def _looked_at(access: Access, stored: StoredTable, most: int) -> tuple[StoredTable, tuple[Row, ...], list[str]]:
    """(a table, its first rows, what is odd in them): a column with values that its type does not have, such as `infinity`, is a text."""
    try:
        return stored, _rows(access, _fields(stored), most), []
    except DataError:
        odd = [f for f in _fields(stored) if not _fits(access, f, most)]
    names = {f.name for f in odd}
    columns = tuple(replace(c, type=STRING) if c.name in names else c for c in stored.columns)
    told = [
        f"Column '{f.name}' holds a value that is no {f.type}, such as infinity or NaN: it is read as a text."
        for f in odd
    ]
    changed = replace(stored, columns=columns)
    return changed, _rows(access, _fields(changed), most), told


def _fits(access: Access, field: Field, most: int) -> bool:
    try:
        first_rows(access, (field,), most)
    except DataError:
        return False
    return True


def _rows(access: Access, fields: Sequence[Field], most: int) -> tuple[Row, ...]:
    batches = first_rows(access, fields, most)
    return tuple(row for batch in batches for row in batch.to_pylist(maps_as_pydicts="lossy"))


def _sample(
    place: str,
    table: str,
    connector: str,
    options: TableOptions,
    stored: StoredTable,
    rows: tuple[Row, ...],
    remarks: Sequence[str],
) -> Sample:
    if not stored.columns:
        raise PipelineError.of(f"'{place}' has no columns")
    return Sample(
        place=place,
        name=name_for(table.rpartition(".")[2], "rows"),
        connector=connector,
        options=options.written,
        parts=(rows,),
        looked_at=f"'{place}'",
        schema=Schema(_fields(stored)),
        primary_key=stored.primary_key,
        remarks=tuple(remarks),
        variables=options.variables,
    )
