"""Connector options of the document: nested mappings become dotted keys, and every problem is shown where the option stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from flowrun.errors import Location, OptionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.nodes import YamlEntry, YamlMapping, YamlNode, YamlScalar, YamlSequence, describe
from flowrun.frontend.trees.spec import Section

_OF_SEVERAL = "if it takes several they are one text, and `flowrun connectors NAME` says what separates them"


@dataclass(slots=True)
class GivenOptions:
    """Options as written: text by flat key, and where key and value stand."""

    values: dict[str, object] = field(default_factory=dict)
    keys: dict[str, Location] = field(default_factory=dict)
    places: dict[str, Location] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)

    def report(self, problem: OptionError, section: Section, diagnostics: Diagnostics) -> None:
        """Add an option's problem: at its value if it is given (at its key if it is unknown), else at the record."""
        if problem.option == "partition_keys":  # what connectors call them
            diagnostics.error(problem.message, section.value_at("partition_by"), hint=problem.hint)
            return
        unknown = " has no option " in problem.message
        at = (self.keys if unknown else self.places).get(problem.option)
        if at is None:
            at = section.value_at(problem.option) if section.has(problem.option) else section.at("connector")
        diagnostics.error(problem.message, at, hint=problem.hint)


def flatten_options(section: Section, diagnostics: Diagnostics) -> GivenOptions | None:
    """The record's further keys as flat options; None if one is malformed, which is reported.

    `fields: {id: {kind: sequence}}` is `fields.id.kind`, as in a SQL WITH clause.
    """
    given = GivenOptions()
    complete = True
    for key, place, value in _leaves(section.extra, ""):
        if not isinstance(value, YamlScalar) or value.is_null:
            hint = _OF_SEVERAL if isinstance(value, YamlSequence) else None
            diagnostics.error(
                f"option '{key}' expects a single value, got {describe(value)}", value.location, hint=hint
            )
            complete = False
        elif key in given.values:
            diagnostics.error(f"option '{key}' is given twice", place, hint=f"first in line {given.keys[key].line}")
            complete = False
        elif value.unresolved:
            complete = False
        else:
            given.values[key] = value.text
            given.keys[key] = place
            given.places[key] = value.location
            if value.secret:
                given.secrets.add(key)
    return given if complete else None


def _leaves(entries: tuple[YamlEntry, ...], prefix: str) -> Iterator[tuple[str, Location, YamlNode]]:
    for entry in entries:
        key = prefix + entry.name
        if isinstance(entry.value, YamlMapping) and entry.value.entries:
            yield from _leaves(entry.value.entries, key + ".")
        else:
            yield key, entry.key.location, entry.value
