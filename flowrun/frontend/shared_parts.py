"""What a project gives to each of its pipelines: values of variables, settings, sources, functions and SQL scripts that declare tables.

What a pipeline says itself comes before what its project says.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flowrun.core.record import record
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import References, ReferenceValue, SharedVariable
from flowrun.frontend.settings.declaration import SETTINGS
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.interpolation import Interpolation
from flowrun.frontend.trees.nodes import YamlEntry, YamlMapping, YamlNode, YamlScalar
from flowrun.frontend.trees.spec import VariantValue

_WHOLE = frozenset(key.name for key in SETTINGS.keys if isinstance(key.value, VariantValue))
"""Settings whose keys depend on each other: one of a pipeline replaces all of the project's."""


@record(eq=False)
class SharedParts:
    """What a project gives to its pipelines in one environment, as trees of its text; no reference in them is filled yet.

    Attributes:
        source: the text of `flowrun.yaml`.
        folder: of that file: its secret files are looked up from there.
        variables: values by name.
        settings: None: there are none.
        sources: by name.
        functions: by name, as it is written.
        scripts: SQL files that declare tables.
    """

    source: SourceText
    folder: Path
    variables: Mapping[str, YamlScalar]
    settings: YamlMapping | None
    sources: Mapping[str, YamlEntry]
    functions: Mapping[str, YamlEntry]
    scripts: tuple[SourceText, ...]

    def references(self, pipeline: References) -> References:
        """The values for the project's own text: those of a pipeline's, but for secret files, which are looked up from its folder."""
        return replace(pipeline, folder=self.folder)

    def values(
        self, variables: Mapping[str, str], environment: Mapping[str, str], used: set[str]
    ) -> dict[str, SharedVariable]:
        """The project's variables by name, each filled when it is asked for, with those of the command line and the environment.

        Args:
            variables: of the command line.
            environment: environment variables.
            used: receives the names of variables that the values mention.
        """
        own = References(variables, environment, self.folder, used=used)
        return {name: functools.partial(_value, scalar, own) for name, scalar in self.variables.items()}


def _value(scalar: YamlScalar, references: References, diagnostics: Diagnostics) -> ReferenceValue | None:
    filled = Interpolation(references).apply(scalar, diagnostics)
    assert isinstance(filled, YamlScalar)
    return None if filled.unresolved else ReferenceValue(filled.text, secret=filled.secret)


def pipeline_references(
    shared: SharedParts | None, variables: Mapping[str, str], environment: Mapping[str, str], folder: Path
) -> References:
    """Where the values in a pipeline's text come from.

    Args:
        shared: of its project; None: it is in none.
        variables: of the command line.
        environment: environment variables.
        folder: of the pipeline: its secret files are looked up from there.
    """
    used: set[str] = set()
    values = {} if shared is None else shared.values(variables, environment, used)
    return References(variables, environment, folder, values, used)


def shared_settings(shared: SharedParts | None, pipeline: References, diagnostics: Diagnostics) -> YamlMapping | None:
    """The settings of a project with their references filled; None: there are none."""
    if shared is None or shared.settings is None:
        return None
    filled = Interpolation(shared.references(pipeline)).apply(shared.settings, diagnostics)
    assert isinstance(filled, YamlMapping)
    return filled


def merged_settings(under: YamlNode | None, over: YamlNode | None) -> YamlNode | None:
    """Settings of which `over` comes first. Mappings are merged key by key, but for those whose keys depend on each other."""
    if under is None or over is None:
        return under if over is None else over
    if not isinstance(under, YamlMapping) or not isinstance(over, YamlMapping):
        return over
    entries = [
        YamlEntry(e.key, e.value if e.name in _WHOLE else merged_settings(under.get(e.name), e.value) or e.value)
        for e in over.entries
    ]
    own = {e.name for e in over.entries}
    return replace(over, entries=(*entries, *(e for e in under.entries if e.name not in own)))


def without_unasked_checkpoints(settings: YamlMapping, shared: SharedParts) -> YamlMapping:
    """Settings without `checkpoint` if it is the project's alone and has no interval: it says how those are taken that others ask for."""
    checkpoint = settings.get("checkpoint")
    if not isinstance(checkpoint, YamlMapping) or checkpoint.entry("interval") is not None:
        return settings
    if any(entry.key.source is not shared.source for entry in checkpoint.entries):
        return settings
    return replace(settings, entries=tuple(e for e in settings.entries if e.name != "checkpoint"))
