"""Sources of a project as CREATE TABLE statements, so that scripts can read them; what is in these has its place in `flowrun.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from flowrun.core.types import STRING
from flowrun.core.units import parse_duration_ms
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.script.stored_tables import type_text
from flowrun.frontend.sql.script.table_options import (
    IDLE_TIMEOUT,
    LETTERS_TO,
    MAX_LETTERS,
    MAX_PERCENT,
    ON_ERROR,
    SCAN_PARALLELISM,
)
from flowrun.frontend.sql.script.text import FilledPiece, ScriptText
from flowrun.frontend.trees.nodes import YamlEntry, YamlMapping, YamlNode, YamlScalar, scalars
from flowrun.plan.tables import known_metadata

_ENGINE = {"parallelism": SCAN_PARALLELISM, "on_error": ON_ERROR}
"""Keys that say how a source runs, and the options of a table that say the same."""
_ON_ERROR = {"mode": ON_ERROR, "to": LETTERS_TO, "max_records": MAX_LETTERS, "max_percent": MAX_PERCENT}
_PARTS = ("schema", "metadata", "computed", "watermark", "primary_key", "partition_by")
_ELSEWHERE = ("uid", "name", "slot_sharing_group", "chaining")
_INSTEAD = "declare a table for scripts in a file of tables:"


def source_script(entry: YamlEntry, source: SourceText, diagnostics: Diagnostics) -> ScriptText | None:
    """The statement that declares a source, whose references are filled; None if SQL has no words for a part of it, which is reported.

    Args:
        entry: the source under its name; its keys and values have been checked.
        source: the text of `flowrun.yaml`.
        diagnostics: receives what cannot be said in SQL.
    """
    if not isinstance(entry.value, YamlMapping):
        return None
    writer = _Writer(entry, entry.value, diagnostics)
    writer.write()
    return None if writer.failed else ScriptText(source.file, writer.text, origin=source, pieces=tuple(writer.pieces))


class _Writer:
    """Writes from left to right; what no value of the document stands behind has the place of the source's name."""

    def __init__(self, entry: YamlEntry, node: YamlMapping, diagnostics: Diagnostics) -> None:
        self._name = entry.key
        self._node = node
        self._diagnostics = diagnostics
        self.text = ""
        self.pieces: list[FilledPiece] = []
        self.failed = False

    def write(self) -> None:
        """The whole statement."""
        self._put("CREATE TABLE ")
        self._identifier(self._name)
        columns = list(self._columns())
        if columns:
            self._put(" (")
            for number, write in enumerate(columns):
                self._put(", " if number else "")
                write()
            self._put(")")
        partitions = list(scalars(self._node.get("partition_by") or self._nothing))
        if partitions:
            self._put(" PARTITIONED BY (")
            self._identifiers(partitions)
            self._put(")")
        self._put(" WITH (")
        for number, (key, value) in enumerate(self._options()):
            self._put(", " if number else "")
            self._quoted(key.text, key)
            self._put(" = ")
            self._quoted(value.text, value)
        self._put(");")

    # -- columns -------------------------------------------------------------------------------------------------------------

    def _columns(self) -> Iterator[Callable[[], None]]:
        """What writes each entry between the brackets."""
        for entry in self._entries("schema"):
            yield partial(self._column, entry, " ")
        for entry in self._entries("metadata"):
            yield partial(self._metadata, entry)
        for entry in self._entries("computed"):
            yield partial(self._column, entry, " AS ")
        mark = self._node.get("watermark")
        if isinstance(mark, YamlMapping):
            yield partial(self._watermark, mark)
        keys = list(scalars(self._node.get("primary_key") or self._nothing))
        if keys:
            yield partial(self._primary_key, keys)

    def _entries(self, key: str) -> tuple[YamlEntry, ...]:
        node = self._node.get(key)
        return node.entries if isinstance(node, YamlMapping) else ()

    def _column(self, entry: YamlEntry, between: str) -> None:
        """A name, and a type or an expression."""
        if isinstance(entry.value, YamlScalar):
            self._identifier(entry.key)
            self._put(between)
            self._put(entry.value.text, entry.value)

    def _metadata(self, entry: YamlEntry) -> None:
        """A name and METADATA FROM, in the connector's type; what the connector does not know is reported where the table is made."""
        connector = self._node.get("connector")
        known, _ = known_metadata(connector.text if isinstance(connector, YamlScalar) else "")
        if isinstance(entry.value, YamlScalar):
            self._identifier(entry.key)
            self._put(f" {type_text(known.get(entry.value.text, STRING))} METADATA FROM ")
            self._quoted(entry.value.text, entry.value)
            self._put(" VIRTUAL")

    def _watermark(self, mark: YamlMapping) -> None:
        """WATERMARK FOR …"""
        column, kind, delay = (mark.get(key) for key in ("column", "type", "delay"))
        word = kind.text if isinstance(kind, YamlScalar) else "bounded"
        if not isinstance(column, YamlScalar):
            self._fail("an event time that is no column", mark, "compute a column, and name it: watermark: {column: …}")
            return
        if word not in ("bounded", "source"):
            self._fail(f"a watermark of type '{word}'", kind or mark)
            return
        self._put("WATERMARK FOR ")
        self._identifier(column)
        self._put(" AS ")
        if word == "source":
            self._put("SOURCE_WATERMARK()", kind)
            return
        self._identifier(column)
        if isinstance(delay, YamlScalar) and (ms := parse_duration_ms(delay.text)):
            self._put(f" - INTERVAL '{ms // 1000}.{ms % 1000:03}' SECOND(3)", delay)

    def _primary_key(self, keys: list[YamlScalar]) -> None:
        """PRIMARY KEY (…) NOT ENFORCED"""
        self._put("PRIMARY KEY (")
        self._identifiers(keys)
        self._put(") NOT ENFORCED")

    # -- options -------------------------------------------------------------------------------------------------------------

    def _options(self) -> Iterator[tuple[YamlScalar, YamlScalar]]:
        """Each option with its value, in the order of the document."""
        for entry in self._node.entries:
            if entry.name in _ELSEWHERE:
                self._fail(f"the key '{entry.name}'", entry.key)
            elif entry.name in _ENGINE:
                yield from self._of_engine(entry)
            elif entry.name not in _PARTS:
                yield from _leaves(entry, entry.key)
        mark = self._node.get("watermark")
        idle = mark.entry("idle_timeout") if isinstance(mark, YamlMapping) else None
        if idle is not None and isinstance(idle.value, YamlScalar):
            yield _named(idle.key, IDLE_TIMEOUT), idle.value

    def _of_engine(self, entry: YamlEntry) -> Iterator[tuple[YamlScalar, YamlScalar]]:
        if isinstance(entry.value, YamlScalar):
            yield _named(entry.key, _ENGINE[entry.name]), entry.value
        elif isinstance(entry.value, YamlMapping):
            for part in entry.value.entries:
                if isinstance(part.value, YamlScalar):
                    yield _named(part.key, _ON_ERROR[part.name]), part.value

    # -- text ----------------------------------------------------------------------------------------------------------------

    @property
    def _nothing(self) -> YamlMapping:
        return YamlMapping(self._node.source, self._node.start, self._node.start, ())

    def _fail(self, what: str, at: YamlNode, hint: str = _INSTEAD) -> None:
        self.failed = True
        message = f"a script cannot read source '{self._name.text}' of the project: SQL has no words for {what}"
        self._diagnostics.error(message, at.location, hint=hint)

    def _identifiers(self, names: list[YamlScalar]) -> None:
        for number, name in enumerate(names):
            self._put(", " if number else "")
            self._identifier(name)

    def _identifier(self, name: YamlScalar) -> None:
        self._put("`" + name.text.replace("`", "``") + "`", name)

    def _quoted(self, text: str, node: YamlScalar) -> None:
        self._put("'" + text.replace("'", "''") + "'", node)

    def _put(self, text: str, node: YamlNode | None = None) -> None:
        if not text:
            return
        at = self._name if node is None else node
        start = len(self.text)
        self.text += text
        value = node if isinstance(node, YamlScalar) else None
        secret, unresolved = (False, False) if value is None else (value.secret, value.unresolved)
        self.pieces.append(FilledPiece(start, len(self.text), at.start, at.end, secret, unresolved))


def _leaves(entry: YamlEntry, key: YamlScalar) -> Iterator[tuple[YamlScalar, YamlScalar]]:
    """An option with its value; nested mappings are options whose names have dots."""
    if isinstance(entry.value, YamlScalar):
        yield key, entry.value
    elif isinstance(entry.value, YamlMapping):
        for below in entry.value.entries:
            yield from _leaves(below, _named(below.key, f"{key.text}.{below.name}"))


def _named(key: YamlScalar, name: str) -> YamlScalar:
    """A key at its place with the name that the option has in SQL."""
    return replace(key, text=name)
