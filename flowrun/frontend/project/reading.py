"""Reads `flowrun.yaml`: checks all of it, and gives what it says for one environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flowrun.errors import Diagnostic, PipelineError, did_you_mean
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.project.declaration import DOCUMENT
from flowrun.frontend.shared_parts import SharedParts, merged_settings
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.checking import check_document
from flowrun.frontend.trees.nodes import YamlEntry, YamlMapping, YamlNode, YamlScalar, YamlSequence
from flowrun.frontend.trees.reader import read_yaml
from flowrun.frontend.trees.spec import Section
from flowrun.state.checkpoints import ProjectText

_FILLED = ("settings", "variables", "environments", "sources")
"""Keys in whose values `${…}` may stand."""


def read_document(source: SourceText) -> Section:
    """A checked `flowrun.yaml`; values with `${…}` are not looked at, as only what a pipeline uses is filled.

    Raises:
        PipelineError: it has errors; carries all of them.
    """
    diagnostics = Diagnostics(source)
    tree = read_yaml(source, diagnostics)
    if tree is None or (isinstance(tree, YamlScalar) and tree.is_null):
        tree = None if diagnostics.has_errors else YamlMapping(source, 0, 0, ())
    document = None if tree is None else check_document(_with_open_references(tree), DOCUMENT, diagnostics)
    if document is not None:
        default = document.scalar("default_environment")
        if default is not None and default.text not in document.named("environments"):
            diagnostics.error(
                f"there is no environment '{default.text}'",
                default.location,
                hint=did_you_mean(default.text, document.named("environments")) or "declare it under environments:",
            )
    diagnostics.raise_if_errors()
    assert document is not None
    return document


def shared_parts(project: ProjectText, environment: str | None) -> SharedParts:
    """What a project gives to a pipeline.

    Args:
        project: its text.
        environment: the name that the command line gives; None: the default one counts.

    Raises:
        PipelineError: the text has errors, or there is no such environment.
    """
    source = SourceText(project.file_name, project.text)
    document = read_document(source)
    chosen = _environment(document, source, environment)
    variables = {**_scalars(document.node.get("variables")), **_scalars(_part(chosen, "variables"))}
    settings = merged_settings(_mapping(document.node.get("settings")), _mapping(_part(chosen, "settings")))
    return SharedParts(
        source=source,
        folder=Path(project.directory),
        variables=variables,
        settings=_mapping(settings),
        sources=_entries(document.node.get("sources")),
        functions=_entries(document.node.get("functions")),
        scripts=tuple(SourceText(name, text) for name, text in project.scripts.items()),
    )


def environments(document: Section) -> tuple[str, ...]:
    """The names of a project's environments."""
    return tuple(document.named("environments"))


def _environment(document: Section, source: SourceText, given: str | None) -> YamlNode | None:
    known = environments(document)
    if given is not None and given not in known:
        hint = did_you_mean(given, known) or "declare it there under environments:"
        at = document.at("environments") if document.has("environments") else document.location
        line = source.line(at.line)
        raise PipelineError([Diagnostic(f"there is no environment '{given}' in {source.file}", at, line, hint)])
    name = given if given is not None else document.text("default_environment")
    node = document.node.get("environments")
    return node.get(name) if name is not None and isinstance(node, YamlMapping) else None


def _with_open_references(tree: YamlNode) -> YamlNode:
    """The document with values that hold references marked, so that nothing is said of what is not known yet."""
    if not isinstance(tree, YamlMapping):
        return tree
    return replace(
        tree, entries=tuple(YamlEntry(e.key, _marked(e.value)) if e.name in _FILLED else e for e in tree.entries)
    )


def _marked(node: YamlNode) -> YamlNode:
    match node:
        case YamlScalar():
            return replace(node, unresolved=True) if "${" in node.text else node
        case YamlSequence():
            return replace(node, items=tuple(map(_marked, node.items)))
        case YamlMapping():
            return replace(node, entries=tuple(YamlEntry(e.key, _marked(e.value)) for e in node.entries))
        case _:
            return node


def _part(node: YamlNode | None, name: str) -> YamlNode | None:
    return node.get(name) if isinstance(node, YamlMapping) else None


def _mapping(node: YamlNode | None) -> YamlMapping | None:
    return node if isinstance(node, YamlMapping) else None


def _entries(node: YamlNode | None) -> Mapping[str, YamlEntry]:
    return {e.name: e for e in node.entries} if isinstance(node, YamlMapping) else {}


def _scalars(node: YamlNode | None) -> dict[str, YamlScalar]:
    return {name: e.value for name, e in _entries(node).items() if isinstance(e.value, YamlScalar)}
