"""What a project gives to a pipeline in YAML, put into its document as if it had been written there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import References
from flowrun.frontend.shared_parts import (
    SharedParts,
    merged_settings,
    shared_settings,
    without_unasked_checkpoints,
)
from flowrun.frontend.trees.interpolation import Interpolation
from flowrun.frontend.trees.nodes import ScalarStyle, YamlEntry, YamlMapping, YamlNode, YamlScalar, scalars

_READERS = ("steps", "sinks")


def with_shared_parts(
    tree: YamlNode, shared: SharedParts, overrides: Iterable[str], references: References, diagnostics: Diagnostics
) -> YamlNode:
    """The document with the project's settings below its own, and with those of its sources and functions that it may use.

    Which those are is told by the words in its steps and sinks; the document's own come before those of equal names.

    Args:
        tree: the document.
        shared: what the project gives.
        overrides: `path=value` texts of the command line, which may name sources, too.
        references: the pipeline's.
        diagnostics: receives what is wrong with references in the project's text.
    """
    if not isinstance(tree, YamlMapping):
        return tree
    texts = [s.text for key in _READERS for s in scalars(tree.get(key) or _nothing(tree))] + list(overrides)
    filling = Interpolation(shared.references(references))
    own = _names(tree, "sources") | _names(tree, "steps")
    sources = {n: e for n, e in shared.sources.items() if n not in own and _is_word(n, texts)}
    functions = {
        n: e for n, e in shared.functions.items() if n.upper() not in _upper(tree) and _is_word(n, texts, re.IGNORECASE)
    }
    tree = _with(tree, "sources", sources, shared, filling, diagnostics)
    tree = _with(tree, "functions", functions, shared, filling, diagnostics)
    settings = merged_settings(shared_settings(shared, references, diagnostics), tree.get("settings"))
    return tree if settings is None else _put(tree, "settings", settings, shared)


def without_unasked_parts(tree: YamlNode, shared: SharedParts) -> YamlNode:
    """The document, with what the command line says, without settings of the project that only matter to what it does not ask for."""
    settings = tree.get("settings") if isinstance(tree, YamlMapping) else None
    if not isinstance(tree, YamlMapping) or not isinstance(settings, YamlMapping):
        return tree
    return _put(tree, "settings", without_unasked_checkpoints(settings, shared), shared)


def _names(tree: YamlMapping, key: str) -> set[str]:
    node = tree.get(key)
    return {e.name for e in node.entries} if isinstance(node, YamlMapping) else set()


def _upper(tree: YamlMapping) -> set[str]:
    return {name.upper() for name in _names(tree, "functions")}


def _is_word(name: str, texts: Iterable[str], flags: re.RegexFlag = re.NOFLAG) -> bool:
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])", flags)
    return any(word.search(text) for text in texts)


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


def _nothing(tree: YamlMapping) -> YamlMapping:
    return YamlMapping(tree.source, tree.start, tree.start, ())
