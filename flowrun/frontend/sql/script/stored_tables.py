"""Tables that a catalog knows, as the CREATE TABLE statements that would declare them: so they are read, and kept with a job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flowrun.api.table_catalog import StoredColumn, StoredTable
from flowrun.core.types import DataType, TypeRoot
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.grammar.tokens import scan
from flowrun.frontend.sql.script.ddl_parser import create_table
from flowrun.frontend.sql.script.statement_reader import Slice, StatementReader
from flowrun.frontend.sql.script.statements import ColumnSyntax, CreateTable
from flowrun.frontend.sql.spans import Span

_TABLE = ("CREATE", "TABLE")


def stored_text(name: str, table: StoredTable) -> str:
    """The statement that declares a table, all of whose columns have types.

    >>> from flowrun.core.types import BIGINT
    >>> stored_text("o'clock", StoredTable((StoredColumn("id", BIGINT, "int8", False),), ("id",), options={"table-name": "o'clock"}))
    "CREATE TABLE `o'clock` (`id` BIGINT NOT NULL, PRIMARY KEY (`id`) NOT ENFORCED) WITH ('table-name' = 'o''clock')"
    """
    parts = [_column(c) for c in table.columns]
    if table.primary_key:
        parts.append(f"PRIMARY KEY ({_names(table.primary_key)}) NOT ENFORCED")
    text = f"CREATE TABLE {_quoted(name)} ({', '.join(parts)}){_comment(table.comment)}"
    if table.partition_keys:
        text += f" PARTITIONED BY ({_names(table.partition_keys)})"
    options = ", ".join(f"{_text(k)} = {_text(v)}" for k, v in table.options.items())
    return f"{text} WITH ({options})" if options else text


def stored_syntax(text: str, span: Span) -> CreateTable:
    """What a statement of `stored_text` says, as if it stood in the script.

    Args:
        text: the statement.
        span: where its parts are shown: they do not stand in the script.
    """
    reader = StatementReader(text, list(scan(text)))
    reader.expect_phrase(*_TABLE)
    read = create_table(reader)
    key = read.primary_key
    return replace(
        read,
        name=_moved(read.name, span),
        columns=tuple(_moved_column(c, span) for c in read.columns),
        primary_key=None if key is None else replace(key, columns=_moved(key.columns, span), span=span),
        partitions=_moved(read.partitions, span),
        options=tuple(replace(o, key_span=span, value_span=span) for o in read.options),
    )


def type_text(type: DataType, *, with_required: bool = False) -> str:
    """The type as `parse_type` reads it: names of fields are quoted.

    Args:
        type: any.
        with_required: whether it says which parts of it are NOT NULL.

    >>> from flowrun.core.types import STRING, row
    >>> type_text(row(("a b", STRING)))
    'ROW<`a b` STRING>'
    """
    required = [with_required and type.is_required(i) for i in range(len(type.children))]
    inner = [
        type_text(child, with_required=with_required) + (" NOT NULL" if must else "")
        for child, must in zip(type.children, required, strict=True)
    ]
    match type.root:
        case TypeRoot.ARRAY | TypeRoot.MAP:
            return f"{type.root.value}<{', '.join(inner)}>"
        case TypeRoot.ROW:
            return f"ROW<{', '.join(f'{_quoted(n)} {t}' for n, t in zip(type.names, inner, strict=True))}>"
        case _:
            return str(type)


def _column(column: StoredColumn) -> str:
    assert column.type is not None
    type = type_text(column.type, with_required=True)
    return f"{_quoted(column.name)} {type}{'' if column.nullable else ' NOT NULL'}{_comment(column.comment)}"


def _comment(comment: str | None) -> str:
    return "" if comment is None else f" COMMENT {_text(comment)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_quoted, names))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _moved(names: tuple[Name, ...], span: Span) -> tuple[Name, ...]:
    return tuple(replace(n, span=span) for n in names)


def _moved_column(column: ColumnSyntax, span: Span) -> ColumnSyntax:
    type = None if column.type is None else Slice(column.type.text, span[0])
    return replace(column, name=replace(column.name, span=span), span=span, type=type)
