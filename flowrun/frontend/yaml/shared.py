"""What a project gives to a pipeline in YAML, put into its document as if it had been written there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import References
from flowrun.frontend.shared_parts import (
    SharedParts,
    merged_settings,
    shared_settings,
    without_unasked_checkpoints,
)
from flowrun.frontend.sql.grammar.tables_named import tables_named
from flowrun.frontend.trees.interpolation import Interpolation
from flowrun.frontend.trees.nodes import ScalarStyle, YamlEntry, YamlMapping, YamlNode, YamlScalar, scalars
from flowrun.frontend.trees.overrides import apply_overrides
from flowrun.frontend.yaml.names import SECOND_INPUTS
from flowrun.frontend.yaml.queries.step_queries import SET_PARTS

_READERS = ("steps", "sinks")
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
"""A function's name in SQL, in a step or in a query."""


def with_shared_parts(
    tree: YamlNode, shared: SharedParts, overrides: Iterable[str], references: References, diagnostics: Diagnostics
) -> YamlNode:
    """The document with the project's settings below its own, and with those of its sources and functions that its steps and sinks use.
    What the document declares itself comes before what has an equal name there.

    Args:
        tree: the document.
        shared: what the project gives.
        overrides: `path=value` texts of the command line, which may change what steps read.
        references: the pipeline's.
        diagnostics: receives what is wrong with references in the project's text.
    """
    if not isinstance(tree, YamlMapping):
        return tree
    unheard = Diagnostics()  # what is wrong is reported when the document is filled
    whole = Interpolation(references).apply(apply_overrides(tree, overrides, unheard), unheard)
    readers = [e.value for key in _READERS for e in _entries(whole, key) if isinstance(e.value, YamlMapping)]
    filling = Interpolation(shared.references(references))
    own = {e.name for key in ("sources", "steps") for e in _entries(tree, key)}
    read = {name for reader in readers for name in _tables_read(reader)}
    sources = {n: e for n, e in shared.sources.items() if n in read - own}
    declared = {e.name.upper() for e in _entries(tree, "functions")}
    called = {n.upper() for reader in readers for s in scalars(reader) for n in _CALL.findall(s.text)}
    functions = {n: e for n, e in shared.functions.items() if n.upper() in called - declared}
    tree = _with(tree, "sources", sources, shared, filling, diagnostics)
    tree = _with(tree, "functions", functions, shared, filling, diagnostics)
    settings = merged_settings(shared_settings(shared, references, diagnostics), tree.get("settings"))
    return tree if settings is None else _put(tree, "settings", settings, shared)


def _tables_read(reader: YamlMapping) -> Iterator[str]:
    """The names that a step or sink reads, whatever else is wrong with it."""
    for key in ("from", "union", *SET_PARTS):
        yield from (s.text for s in _scalars(reader.get(key)))
    for key in ("join", *SECOND_INPUTS):
        part = reader.get(key)
        yield from (s.text for s in _scalars(part.get("with") if isinstance(part, YamlMapping) else part))
    for query in _scalars(reader.get("sql")):
        yield from (table.text for table in tables_named(query.text))


def _scalars(node: YamlNode | None) -> Iterator[YamlScalar]:
    return iter(()) if node is None else scalars(node)


def _entries(tree: YamlNode, key: str) -> tuple[YamlEntry, ...]:
    node = tree.get(key) if isinstance(tree, YamlMapping) else None
    return node.entries if isinstance(node, YamlMapping) else ()


def without_unasked_parts(tree: YamlNode, shared: SharedParts) -> YamlNode:
    """The document, with what the command line says, without settings of the project that only matter to what it does not ask for."""
    settings = tree.get("settings") if isinstance(tree, YamlMapping) else None
    if not isinstance(tree, YamlMapping) or not isinstance(settings, YamlMapping):
        return tree
    return _put(tree, "settings", without_unasked_checkpoints(settings, shared), shared)


def _with(
    tree: YamlMapping,
    key: str,
    added: Mapping[str, YamlEntry],
    shared: SharedParts,
    filling: Interpolation,
    diagnostics: Diagnostics,
) -> YamlMapping:
    """The document with further entries below a key."""
    if not added:
        return tree
    node = tree.get(key)
    if node is not None and not isinstance(node, YamlMapping) and not (isinstance(node, YamlScalar) and node.is_null):
        return tree  # that it is no mapping is reported
    before = node.entries if isinstance(node, YamlMapping) else ()
    entries = tuple(YamlEntry(e.key, filling.apply(e.value, diagnostics)) for e in added.values())
    base = node if isinstance(node, YamlMapping) else YamlMapping(tree.source, tree.start, tree.end, ())
    return _put(tree, key, replace(base, entries=(*before, *entries)), shared)


def _put(tree: YamlMapping, key: str, value: YamlNode, shared: SharedParts) -> YamlMapping:
    """The document with another value of a key."""
    if tree.entry(key) is not None:
        entries = tuple(YamlEntry(e.key, value) if e.name == key else e for e in tree.entries)
        return replace(tree, entries=entries)
    name = YamlScalar(shared.source, value.start, value.start, key, ScalarStyle.PLAIN, key)
    return replace(tree, entries=(*tree.entries, YamlEntry(name, value)))
