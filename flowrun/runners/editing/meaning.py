"""What the word at a place is: functions with how they are used, tables with their columns, keys and options with what they do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import Location
from flowrun.frontend.pipeline import SQL_SUFFIXES
from flowrun.runners.editing.analysis import Analysis
from flowrun.runners.editing.catalog_words import CatalogWords
from flowrun.runners.editing.sql_text import Cursor, cursor_between
from flowrun.runners.editing.sql_words import connector_words, function_words, named_in, options_of
from flowrun.runners.editing.yaml_words import key_at, place_in, place_of, record_at

_WORD = re.compile(r"`[^`]+`|[\w.-]+")
_CONNECTOR_OF_SQL = re.compile(r"'connector'\s*=\s*'([^']*)'")


@record
class Word:
    """A word of a line.

    Attributes:
        text: without quotes.
        start: 0-based code point in the line.
        end: one past its last.
    """

    text: str
    start: int
    end: int


def word_at(line: str, column: int) -> Word | None:
    """The word that a place is in, or just behind.

    >>> word_at("SELECT `user id` FROM t", 9)
    Word(text='user id', start=7, end=16)
    """
    for found in _WORD.finditer(line):
        if found.start() <= column <= found.end():
            return Word(found[0].strip("`"), found.start(), found.end())
    return None


def about(
    path: Path, text: str, line: int, column: int, analysis: Analysis, catalogs: CatalogWords | None = None
) -> str | None:
    """What people are told of the word at a place, as Markdown; None: nothing is known of it, or not yet by its catalog.

    Args:
        path: of the text.
        text: all of it.
        line: 0-based.
        column: 0-based code point.
        analysis: of the text, or of its last version without errors.
        catalogs: whose tables the text may name; None: none.
    """
    lines = text.split("\n")
    word = word_at(lines[line], column) if line < len(lines) else None
    if word is None:
        return None
    is_sql = path.suffix.lower() in SQL_SUFFIXES
    stored: Mapping[str, Schema] = {}
    if is_sql:
        cursor = _cursor(lines, line, column)
        if cursor.in_comment or cursor.text is not None:
            return None if cursor.in_comment else _of_sql_option(cursor, word)
        if catalogs is not None:
            stored = catalogs.tables_in(cursor.statement, analysis.tables)
    own = None if is_sql else _of_yaml_key(path, text, line, word)
    return (
        own
        or _of_function(lines[line], word, analysis)
        or _of_table(word, {**stored, **analysis.tables})
        or _of_column(text, line, word, analysis, stored, is_sql=is_sql)
    )


def declared_at(path: Path, text: str, line: int, column: int, analysis: Analysis) -> Location | None:
    """Where the table, step or function at a place was declared; None: it is no such name. Arguments as of `about`."""
    lines = text.split("\n")
    word = word_at(lines[line], column) if line < len(lines) else None
    if word is None:
        return None
    if path.suffix.lower() in SQL_SUFFIXES:
        cursor = _cursor(lines, line, column)
        if cursor.in_comment or cursor.text is not None:
            return None
    return analysis.places.get(word.text) or analysis.places.get(word.text.rpartition(".")[0])


def _of_function(line: str, word: Word, analysis: Analysis) -> str | None:
    if not line[word.end :].lstrip().startswith("("):
        return None
    known = {name.upper(): usage for name, usage in (*function_words(), *analysis.functions)}
    text = known.get(f"{word.text.upper()}(")
    if text is None:
        return None
    usage, _, doc = text.partition(": ")
    return f"```sql\n{usage}\n```\n{doc}"


def _of_table(word: Word, tables: Mapping[str, Schema]) -> str | None:
    schema = tables.get(word.text)
    if schema is None:
        return None
    columns = "\n".join(f"{field.name} {field.type}" for field in schema)
    return f"**{word.text}**\n```sql\n{columns}\n```"


def _of_column(
    text: str, line: int, word: Word, analysis: Analysis, stored: Mapping[str, Schema], *, is_sql: bool
) -> str | None:
    name = word.text.rpartition(".")[2]
    read = text if is_sql else _yaml_input(text, line)
    schemas = (*named_in(read, analysis.tables), *stored.values())
    found = [(f.name, str(f.type)) for schema in schemas for f in schema if f.name == name]
    return None if not found else "\n".join(f"```sql\n{name} {type}\n```" for name, type in dict.fromkeys(found))


def _yaml_input(text: str, line: int) -> str:
    """What the step at a line reads: the names in its `from` and its SQL."""
    place = place_of(text, line, len(text.split("\n")[line]))
    return " ".join(place.siblings.get(key, "") for key in ("from", "sql", "union")) + " " + place.whole


def _cursor(lines: list[str], line: int, column: int) -> Cursor:
    """The place in the SQL."""
    return cursor_between(
        "\n".join([*lines[:line], lines[line][:column]]), "\n".join([lines[line][column:], *lines[line + 1 :]])
    )


def _of_sql_option(cursor: Cursor, word: Word) -> str | None:
    chosen = _CONNECTOR_OF_SQL.search(cursor.statement)
    if chosen is None:
        return None
    if word.text == chosen[1]:
        return dict(connector_words()).get(word.text)
    return _option(chosen[1], word.text)


def _of_yaml_key(path: Path, text: str, line: int, word: Word) -> str | None:
    place, at_key = place_in(path, text, line, word.end), place_in(path, text, line, word.start)
    if place is None or at_key is None:
        return None
    record = record_at(at_key)
    connector = at_key.siblings.get("connector", "").strip("\"'")
    if at_key.key is None and record is not None:
        key = record.key(word.text)
        if key is not None:
            return key.doc
        return _option(connector, word.text) if record.open_doc else None
    spec = key_at(place)
    if place.key == "connector" and spec is not None:
        return dict(connector_words()).get(word.text)
    return None


def _option(connector: str, name: str) -> str | None:
    option = next((o for o in options_of(connector) if o.name == name), None)
    if option is None:
        return None
    choices = f" One of {', '.join(option.choices)}." if option.choices else ""
    default = "" if option.default is None else f" Default: {option.default}."
    return f"**{option.name}** ({option.type.value}): {option.doc}{choices}{default}"
