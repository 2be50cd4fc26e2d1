"""Words that may come next in YAML of pipelines, projects and tests: keys, choices, names of steps, options of connectors, SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.frontend.trees.spec import (
    BooleanValue,
    ChoiceValue,
    KeySpec,
    ListValue,
    MapValue,
    RecordSpec,
    RecordValue,
    ValueSpec,
    VariantValue,
)
from flowrun.frontend.yaml.declaration.document import DOCUMENT as PIPELINE
from flowrun.frontend.yaml.declaration.vocabulary import METADATA_KEY, REFERENCE
from flowrun.runners.editing.documents import document_of
from flowrun.runners.editing.sql_words import (
    columns,
    connector_words,
    format_words,
    function_words,
    metadata_words,
    option_words,
    shown_columns,
    sql_proposals,
)
from flowrun.runners.editing.words import Proposal, beginning_with

_KEY = re.compile(
    r"""^(?P<indent>\s*)(?P<dash>-\s+)?(?P<key>"[^"]*"|'[^']*'|[^\s#:{}\[\],'"][^:#{}\[\],]*?)\s*:(?P<rest>\s.*|$)"""
)
_FLOW_KEY = re.compile(r"""[{,]\s*(?P<key>[\w.-]+)\s*:\s*(?P<rest>[^{},]*)$""")
_BEGUN = re.compile(r"[\w.`-]*$")
_TABLES = ("sources", "sinks")


@record
class Place:
    """Where a cursor is in a YAML text.

    Attributes:
        path: keys from the document down to the mapping that the cursor is in.
        key: whose value the cursor is in; None: it is where a key begins.
        begun: the part of a word before the cursor.
        siblings: keys of the mapping that stand there already, with the text of their values.
        outer: the same of the mapping around it.
        document: what the keys of the text are those of.
        value: what stands of the value before the cursor, over all lines of a literal block.
        whole: all of it.
    """

    path: tuple[str, ...]
    key: str | None
    begun: str
    siblings: Mapping[str, str]
    value: str = ""
    whole: str = ""
    outer: Mapping[str, str] = field(default_factory=dict)
    document: RecordValue = field(default=PIPELINE, repr=False)


def place_of(text: str, line: int, column: int) -> Place:
    r"""The place of a cursor: 0-based line and column, in code points. Block style by its indentation; one mapping in braces on a line.

    >>> place_of("steps:\n  paid:\n    from: or", 2, 12)
    Place(path=('steps', 'paid'), key='from', begun='or', siblings={'from': 'or'}, value='or', whole='or', outer={'paid': ''})
    """
    lines = text.split("\n")
    before = lines[line][:column]
    begun = _BEGUN.search(before)
    word = "" if begun is None else begun[0]
    block = _block_of(lines, line)
    if block is not None:
        return _in_block(lines, block, line, column, word)
    own = _KEY.match(before)
    indent = len(own["indent"]) + len(own["dash"] or "") if own else len(before) - len(before.lstrip())
    path = _parents(lines[:line], indent)
    if "{" in before and own is not None:  # `watermark: {column: …`
        inside = _FLOW_KEY.search(before)
        given = dict(re.findall(r"[{,]\s*([\w.-]+)\s*:\s*([^{},]*)", lines[line]))
        key = None if inside is None else inside["key"]
        return Place((*path, _plain(own["key"])), key, word, given, outer=_siblings(lines, line, indent))
    siblings = _siblings(lines, line, indent)
    if own is not None:
        key = _plain(own["key"])
        outer = _outer(lines, line, indent)
        return Place(path, key, word, siblings, own["rest"].lstrip(), siblings.get(key, ""), outer)
    if path and before.lstrip().startswith("- "):  # an item of a list
        at = next(i for i in range(line - 1, -1, -1) if (k := _KEY.match(lines[i])) and len(k["indent"]) < indent)
        found = _KEY.match(lines[at])
        assert found is not None
        item = before.lstrip()[2:]
        return Place(path[:-1], path[-1], word, _siblings(lines, at, len(found["indent"])), item, item)
    return Place(path, None, word, siblings)


def place_in(path: Path, text: str, line: int, column: int) -> Place | None:
    """The place of a cursor, as `place_of`, in a document that is flowrun's; None: it is not."""
    document = document_of(path, text)
    return None if document is None else replace(place_of(text, line, column), document=document)


def _block_of(lines: Sequence[str], line: int) -> int | None:
    """The line of the key whose literal block a line belongs to; None: it is in none."""
    depth = len(lines[line]) - len(lines[line].lstrip()) if lines[line].strip() else None
    for at in range(line - 1, -1, -1):
        text = lines[at]
        if not text.strip():
            continue
        own = len(text) - len(text.lstrip())
        if depth is None or own < depth:
            found = _KEY.match(text)
            if found is not None and re.fullmatch(r"\s*[|>][+-]?\d?\s*(#.*)?", found["rest"]):
                return at
            if depth is not None:
                return None
            depth = own
    return None


def _in_block(lines: Sequence[str], at: int, line: int, column: int, word: str) -> Place:
    found = _KEY.match(lines[at])
    assert found is not None
    indent = len(found["indent"]) + len(found["dash"] or "")
    end = next(
        (i for i in range(at + 1, len(lines)) if lines[i].strip() and len(lines[i]) - len(lines[i].lstrip()) <= indent),
        len(lines),
    )
    before = "\n".join([*lines[at + 1 : line], lines[line][:column]])
    whole = "\n".join(lines[at + 1 : end])
    return Place(_parents(lines[:at], indent), _plain(found["key"]), word, _siblings(lines, at, indent), before, whole)


def _parents(above: Sequence[str], indent: int) -> tuple[str, ...]:
    path: list[str] = []
    for text in reversed(above):
        found = _KEY.match(text)
        if found is None:
            continue
        own = len(found["indent"])
        if own < indent:
            path.append(_plain(found["key"]))
            indent = own
    return tuple(reversed(path))


def _siblings(lines: Sequence[str], line: int, indent: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for step, begin in ((-1, line), (1, line + 1)):
        at = begin
        while 0 <= at < len(lines):
            text = lines[at]
            key = _KEY.match(text)
            depth = len(text) - len(text.lstrip())
            if text.strip() and depth < indent:
                break
            if key is not None and len(key["indent"]) + len(key["dash"] or "") == indent:
                found[_plain(key["key"])] = key["rest"].strip()
            at += step
    return found


def _outer(lines: Sequence[str], line: int, indent: int) -> dict[str, str]:
    for at in range(line - 1, -1, -1):
        key = _KEY.match(lines[at])
        if key is not None and len(key["indent"]) < indent:
            return _siblings(lines, at, len(key["indent"]))
    return {}


def _plain(key: str) -> str:
    return key.strip("\"'")


def record_at(place: Place) -> RecordSpec | None:
    """The record whose keys the mapping of a place has; None: its keys are the user's own, or not known."""
    spec = _spec_at(place)
    if isinstance(spec, RecordValue):
        return spec.record
    if isinstance(spec, VariantValue):
        chosen = place.siblings.get(spec.tag, spec.default or "").strip("\"'")
        variants = dict(spec.variants)
        return variants.get(chosen, next(iter(variants.values())))
    return None


def key_at(place: Place) -> KeySpec | None:
    """The key whose value a place is in; None: it is not known."""
    record = record_at(place)
    return None if record is None or place.key is None else record.key(place.key)


def _spec_at(place: Place) -> ValueSpec | None:
    spec: ValueSpec | None = place.document
    for name in place.path:
        match spec:
            case RecordValue(record=known):
                key = known.key(name)
                spec = None if key is None else key.value
            case MapValue(value=value):
                spec = value
            case VariantValue():
                key = next((k for _, variant in spec.variants if (k := variant.key(name)) is not None), None)
                spec = None if key is None else key.value
            case _:
                return None
    return spec


def yaml_proposals(
    place: Place, nodes: Mapping[str, Schema], functions: Sequence[tuple[str, str]] = ()
) -> Iterator[Proposal]:
    """The words that may stand at a place; `nodes` are the sources and steps with their columns, `functions` as of `sql_proposals`."""
    if place.key is None:
        yield from _keys(place)
        return
    spec = _spec_at(place)
    if isinstance(spec, VariantValue) and place.key == spec.tag:
        yield from beginning_with(place.begun, [(name, record.doc) for name, record in spec.variants], "value")
        return
    key = key_at(place)
    if place.key == "connector" and key is not None:
        yield from beginning_with(place.begun, connector_words(), "value")
    elif isinstance(spec, MapValue) and spec.value == METADATA_KEY:
        written = place.path[0] == "sinks"
        yield from beginning_with(
            place.begun, metadata_words(_plain(place.outer.get("connector", "")), written=written), "value"
        )
    elif place.key == "format" and key is not None:
        yield from beginning_with(place.begun, format_words(), "value")
    elif key is not None:
        yield from _values(key, place, nodes, functions)


def _keys(place: Place) -> Iterator[Proposal]:
    record = record_at(place)
    if record is None:
        return
    wanted = [(f"{key.name}: ", key.doc) for key in record.keys if key.name not in place.siblings]
    spec = _spec_at(place)
    if isinstance(spec, VariantValue) and spec.tag not in place.siblings:
        wanted.insert(0, (f"{spec.tag}: ", spec.tag_doc))
    yield from beginning_with(place.begun, wanted, "key")
    if record.open_doc and place.path and place.path[0] in _TABLES:
        options = option_words(place.siblings.get("connector", "").strip("\"'"))
        yield from beginning_with(
            place.begun, [(f"{n}: ", doc) for n, doc in options if n not in place.siblings], "option"
        )


def _values(
    key: KeySpec, place: Place, nodes: Mapping[str, Schema], functions: Sequence[tuple[str, str]]
) -> Iterator[Proposal]:
    match key.value:
        case ChoiceValue(choices=choices):
            yield from beginning_with(place.begun, [(choice, "") for choice in choices], "value")
        case BooleanValue():
            yield from beginning_with(place.begun, [("true", ""), ("false", "")], "value")
        case value if value == REFERENCE:
            named = [(name, shown_columns(schema)) for name, schema in nodes.items()]
            yield from beginning_with(place.begun, named, "table")
        case _ if key.name == "sql":
            yield from sql_proposals(place.value, place.whole[len(place.value) :], nodes, functions=functions)
        case _ if _is_sql(key):
            read = nodes.get(place.siblings.get("from", "").strip("\"'"))
            yield from beginning_with(place.begun, columns(read), "column")
            if place.begun:
                yield from beginning_with(place.begun, functions, "function")
                yield from beginning_with(place.begun, function_words(), "function")


def _is_sql(key: KeySpec) -> bool:
    """Whether its value is SQL, or names columns."""
    what = getattr(key.value.item if isinstance(key.value, ListValue) else key.value, "what", "")
    return what.startswith(("a SQL", "a column", "an aggregate", "a window function"))
