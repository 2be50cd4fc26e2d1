"""Reads YAML text into a tree with exact places; what is wrong with the YAML itself becomes diagnostics.

Works on PyYAML's event stream instead of its composer: aliases, duplicate keys, several documents and excessive nesting are
then ours to check, without recursion into foreign code. Only texts are kept, so `on`, `1:30` or `2024-03-01` stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import yaml
from yaml import events

from flowrun.errors import Location
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.nodes import ScalarStyle, YamlEntry, YamlMapping, YamlNode, YamlScalar, YamlSequence

MAX_DEPTH = 64
MAX_NODES = 100_000
_MERGE_KEY = "<<"
_QUOTE_FLOW = 'inside { } and [ ] quote values with commas, braces or "${…}", e.g. "DECIMAL(10,2)"'
_HINTS = (
    ("'\\t' that cannot start", "indent with spaces, not tabs"),
    ("cannot start any token", "quote values that begin with @, ` or %"),
    ("mapping values are not allowed here", "quote a value that contains ': ', or check the indentation of this line"),
    ("could not find expected ':'", "every entry of a mapping is written 'key: value'"),
    ("expected ',' or '}'", _QUOTE_FLOW),
    ("expected ',' or ']'", _QUOTE_FLOW),
    ("expected <block end>", "check the indentation: entries of one mapping or list begin in one column"),
    ("found undefined alias", "define the anchor (&name) before its first use (*name)"),
    ("unexpected end of stream", "close the quote"),
)

_CLOSING = {"[": "]", "{": "}"}


class _Mark(Protocol):
    """A place as PyYAML gives it."""

    index: int


class _StopReadingError(Exception):
    """The tree cannot be built; the reason has been reported."""


def read_yaml(source: SourceText, diagnostics: Diagnostics) -> YamlNode | None:
    """The tree of the text's only document; None if there is none or it could not be read, which `diagnostics` then says."""
    diagnostics.add_source(source)
    composer = _Composer(source, diagnostics)
    try:
        return composer.compose()
    except _StopReadingError:
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or "this is not YAML"
        opened = composer.open_bracket() if "<stream end>" in problem else None
        if opened is not None:
            bracket, place = opened
            closing = _CLOSING[bracket]
            hint = f"write '{closing}' behind its last entry"
            diagnostics.error(f"YAML syntax: this '{bracket}' is never closed", place, hint=hint)
            return None
        context = f" {error.context}" if error.context else ""
        at = source.locate(mark.index) if mark is not None else None
        diagnostics.error(f"YAML syntax{context}: {problem}", at, hint=_hint_for(problem))
    except yaml.reader.ReaderError as error:
        what = f"the character U+{error.character:04X}" if isinstance(error.character, int) else "this byte"
        diagnostics.error(f"YAML does not allow {what} here", source.locate(error.position), hint="remove or escape it")
    return None


def _hint_for(problem: str) -> str | None:
    return next((hint for part, hint in _HINTS if part in problem), None)


@dataclass(slots=True)
class _Collection:
    """A mapping or sequence under construction."""

    start: events.CollectionStartEvent
    children: list[YamlNode] = field(default_factory=list)
    size: int = 1
    """Nodes below, aliases counted as often as they occur."""


class _Composer:
    """Builds the tree from events with an explicit stack."""

    def __init__(self, source: SourceText, diagnostics: Diagnostics) -> None:
        self._source = source
        self._diagnostics = diagnostics
        self._anchors: dict[str, tuple[YamlNode, int] | None] = {}
        self._stack: list[_Collection] = []
        self._root: YamlNode | None = None
        self._documents = 0

    def open_bracket(self) -> tuple[str, Location] | None:
        """The innermost bracket that is open where reading has stopped, with its place."""
        for collection in reversed(self._stack):
            mark = collection.start.start_mark
            if collection.start.flow_style and mark is not None:
                # an anchor or a tag stands before its bracket
                index = next(i for i in range(mark.index, len(self._source.text)) if self._source.text[i] in _CLOSING)
                return self._source.text[index], self._source.locate(index)
        return None

    def compose(self) -> YamlNode | None:
        """Run through all events."""
        for event in _events(self._source.text):
            match event:
                case events.DocumentStartEvent():
                    self._start_document(event)
                case events.AliasEvent():
                    self._add(*self._resolve(event))
                case events.ScalarEvent():
                    node = self._scalar(event)
                    self._remember(event.anchor, node, 1)
                    self._add(node, 1)
                case events.CollectionStartEvent():
                    self._open(event)
                case events.CollectionEndEvent():
                    self._close(event)
        return self._root

    def _stop(self, message: str, at: Location, hint: str | None = None) -> _StopReadingError:
        self._diagnostics.error(message, at, hint=hint)
        return _StopReadingError()

    def _start_document(self, event: events.DocumentStartEvent) -> None:
        self._documents += 1
        if self._documents > 1:
            raise self._stop(
                "a file is one YAML document, but a second one begins here",
                self._source.locate(_index(event.start_mark), _index(event.end_mark)),
                "put each document into a file of its own",
            )

    def _scalar(self, event: events.ScalarEvent) -> YamlScalar:
        style = ScalarStyle(event.style or "")
        start, end = _index(event.start_mark), _index(event.end_mark)
        return YamlScalar(self._source, start, end, event.value, style, event.value)

    def _resolve(self, event: events.AliasEvent) -> tuple[YamlNode, int]:
        at = self._source.locate(_index(event.start_mark), _index(event.end_mark))
        if event.anchor not in self._anchors:
            raise self._stop(
                f"the anchor '&{event.anchor}' is not defined before this use", at, _hint_for("found undefined alias")
            )
        known = self._anchors[event.anchor]
        if known is None:
            raise self._stop(f"'*{event.anchor}' contains itself", at, "an alias may not stand inside its own anchor")
        return known

    def _remember(self, anchor: str | None, node: YamlNode, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, size)

    def _open(self, event: events.CollectionStartEvent) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise self._stop(f"nested more than {MAX_DEPTH} levels deep", self._source.locate(_index(event.start_mark)))
        if event.anchor is not None:
            self._anchors[event.anchor] = None  # known, but not complete: using it now would be a cycle
        self._stack.append(_Collection(event))

    def _close(self, event: events.CollectionEndEvent) -> None:
        collection = self._stack.pop()
        start, end = _index(collection.start.start_mark), _index(event.end_mark)
        node: YamlNode
        if isinstance(event, events.SequenceEndEvent):
            node = YamlSequence(self._source, start, end, tuple(collection.children))
        else:
            node = YamlMapping(self._source, start, end, self._entries(collection.children))
        self._remember(collection.start.anchor, node, collection.size)
        self._add(node, collection.size)

    def _add(self, node: YamlNode, size: int) -> None:
        if not self._stack:
            self._root = node
            return
        top = self._stack[-1]
        top.children.append(node)
        top.size += size
        if top.size > MAX_NODES:
            raise self._stop(f"the document has more than {MAX_NODES} nodes, aliases included", node.location)

    def _entries(self, children: list[YamlNode]) -> tuple[YamlEntry, ...]:
        """Keys paired with values; duplicates are reported, `<<` merges mappings under the keys written here."""
        own: dict[str, YamlEntry] = {}
        merged: dict[str, YamlEntry] = {}
        for key, value in zip(children[::2], children[1::2], strict=True):
            if not isinstance(key, YamlScalar):
                self._diagnostics.error("a key must be a name, not a mapping or list", key.location)
            elif key.text == _MERGE_KEY and key.style is ScalarStyle.PLAIN:
                for entry in self._merged(value):
                    merged.setdefault(entry.name, entry)
            elif key.text in own:
                first = own[key.text].key.location
                self._diagnostics.error(
                    f"the key '{key.text}' occurs twice in this mapping, first in line {first.line}",
                    key.location,
                    hint="remove one of them",
                )
            else:
                own[key.text] = YamlEntry(key, value)
        return (*own.values(), *(e for name, e in merged.items() if name not in own))

    def _merged(self, value: YamlNode) -> Iterator[YamlEntry]:
        for part in value.items if isinstance(value, YamlSequence) else (value,):
            if isinstance(part, YamlMapping):
                yield from part.entries
            else:
                self._diagnostics.error("'<<' merges a mapping or a list of mappings", part.location)


def _index(mark: _Mark | None) -> int:
    return 0 if mark is None else mark.index


def _events(text: str) -> Iterator[events.Event]:
    loader = yaml.SafeLoader(text)
    try:
        while loader.check_event():
            yield loader.get_event()  # type: ignore[no-untyped-call]
    finally:
        loader.dispose()
