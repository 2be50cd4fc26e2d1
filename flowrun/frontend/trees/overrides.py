"""Applies `--set path=value` to a parsed document before it is validated.

A path names keys from the top, joined by dots: `settings.parallelism=4`, `sources.orders.path=in/`, `steps.u.union.1=late`.
A key that itself contains dots is found as it is written. Values are YAML: `steps.s.key_by=[a, b]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from flowrun.errors import Location
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.nodes import (
    ScalarStyle,
    YamlEntry,
    YamlMapping,
    YamlNode,
    YamlScalar,
    YamlSequence,
    describe,
)
from flowrun.frontend.trees.reader import read_yaml

OVERRIDE_FILE = "--set"
_ASSIGNMENT = re.compile(r"\s*([^=\s]+)\s*=(.*)", re.DOTALL)
_FORMAT = "format"
"""A key whose options stand beside it: `format.on-error` beside `format: json`."""


def apply_overrides(document: YamlNode, overrides: Iterable[str], diagnostics: Diagnostics) -> YamlNode:
    """The document with every `path=value` applied in order; malformed ones are reported."""
    for number, text in enumerate(overrides, start=1):
        # Each override is a text of its own, so that messages can point into it.
        source = SourceText(OVERRIDE_FILE if number == 1 else f"{OVERRIDE_FILE} #{number}", text)
        diagnostics.add_source(source)
        match = _ASSIGNMENT.fullmatch(text)
        parts = match[1].split(".") if match else []
        if match is None or not all(parts):
            diagnostics.error(
                f"'{text}' is not of the form path=value",
                source.locate(0, len(text)),
                hint="e.g. settings.parallelism=4",
            )
            continue
        value = _value(source, match.start(2), diagnostics)
        if value is None:
            continue
        key = YamlScalar(source, match.start(1), match.end(1), match[1], ScalarStyle.PLAIN, match[1])
        document = _Override(key, value, diagnostics).apply(document, parts)
    return document


def _value(source: SourceText, start: int, diagnostics: Diagnostics) -> YamlNode | None:
    """The value as a tree; blanking what stands before it keeps its places true. None if it is no YAML, which is reported."""
    blanked = SourceText(source.file, " " * start + source.text[start:])
    if not source.text[start:].strip():
        return YamlScalar(source, start, start, "", ScalarStyle.PLAIN, "")
    return read_yaml(blanked, diagnostics)


class _Override:
    """One assignment."""

    def __init__(self, key: YamlScalar, value: YamlNode, diagnostics: Diagnostics) -> None:
        self._key = key
        self._value = value
        self._diagnostics = diagnostics

    @property
    def _at(self) -> Location:
        return self._key.location

    def apply(self, node: YamlNode, parts: list[str]) -> YamlNode:
        """`node` with the value put at `parts` below it; what is missing on the way is created."""
        if not parts:
            return self._value
        if isinstance(node, YamlSequence):
            return self._in_sequence(node, parts)
        if isinstance(node, YamlScalar) and node.is_null:
            node = YamlMapping(self._key.source, self._key.start, self._key.end, ())
        if not isinstance(node, YamlMapping):
            self._diagnostics.error(f"'{self._key.text}' goes through {describe(node)}, which has no keys", self._at)
            return node
        return self._in_mapping(node, parts)

    def _in_sequence(self, node: YamlSequence, parts: list[str]) -> YamlNode:
        index = int(parts[0]) if parts[0].isdecimal() else -1
        if not 0 <= index < len(node.items):
            self._diagnostics.error(
                f"'{parts[0]}' in '{self._key.text}' is no position of this list",
                self._at,
                hint=f"0 to {len(node.items) - 1}",
            )
            return node
        items = list(node.items)
        items[index] = self.apply(items[index], parts[1:])
        return replace(node, items=tuple(items))

    def _in_mapping(self, node: YamlMapping, parts: list[str]) -> YamlNode:
        # The longest key that exists wins: `a.b.c` may be one key, as connector options often are.
        for size in range(len(parts), 0, -1):
            name = ".".join(parts[:size])
            known = node.entry(name)
            if known is not None and size < len(parts) and name == _FORMAT and isinstance(known.value, YamlScalar):
                return self._added(node, ".".join(parts), self._value)
            if known is not None:
                changed = (
                    YamlEntry(e.key, self.apply(e.value, parts[size:])) if e.name == name else e for e in node.entries
                )
                return replace(node, entries=tuple(changed))
        empty = YamlMapping(self._key.source, self._key.start, self._key.end, ())
        return self._added(node, parts[0], self.apply(empty, parts[1:]))

    def _added(self, node: YamlMapping, name: str, value: YamlNode) -> YamlMapping:
        return replace(node, entries=(*node.entries, YamlEntry(replace(self._key, text=name), value)))
