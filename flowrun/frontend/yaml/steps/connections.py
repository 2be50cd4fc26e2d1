"""The second stream of a process function: `connect`, whose keys must fit those of the step, or `broadcast`."""

from __future__ import annotations

from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.names import SECOND_INPUTS, second_input
from flowrun.frontend.yaml.queries.entries import EntryReader
from flowrun.frontend.yaml.steps.keys import KeyedRows, keyed
from flowrun.frontend.yaml.steps.relational_parts import Tables
from flowrun.frontend.yaml.steps.stages import Stages


class ConnectionReader:
    """Finds the second stream of steps, reporting what is wrong."""

    def __init__(self, diagnostics: Diagnostics, entries: EntryReader) -> None:
        self._diagnostics = diagnostics
        self._entries = entries

    def second(self, section: Section, first: KeyedRows, tables: Tables, stages: Stages) -> KeyedRows | None:
        """The rows of the second stream: with its keys, those of the step unless it has some, or broadcast and without.

        None if something is wrong, which is reported.

        Args:
            section: the step.
            first: its own rows.
            tables: what the step may read, by name.
            stages: of the step.
        """
        name = next(filter(None, (second_input(section, key) for key in SECOND_INPUTS)), None)
        node = None if name is None else tables.get(name.text)
        if name is None or node is None:
            return None
        if first.keys is None or section.has("broadcast"):
            return KeyedRows(node, None)
        connect = section.section("connect")
        own = connect if connect is not None and connect.has("key_by") else section
        found = keyed(own, node, stages, self._entries, of=name.text, part="connected_keys")
        if found is None:
            return None
        second = KeyedRows(*found)
        at = own.at("key_by") if own is connect else section.at("connect")
        if problem := _misfit(first, second):
            message, hint = problem
            self._diagnostics.error(message, at, hint=hint)
            return None
        return second


def _misfit(first: KeyedRows, second: KeyedRows) -> tuple[str, str] | None:
    """What is wrong with the keys of both inputs, and what to do; None: they fit."""
    one, other = first.keys or (), second.keys or ()
    if len(one) != len(other):
        counts = f"the step has {len(one)}, the connected stream {len(other)}"
        return f"both streams need as many keys: {counts}", "name the columns that must be equal, in the same order"
    for left, right in zip(one, other, strict=True):
        a, b = first.node.schema.fields[left], second.node.schema.fields[right]
        if a.type.arrow != b.type.arrow:
            return (
                f"keys that meet must have equal types, but '{a.name}' is {a.type} and '{b.name}' of the connected stream {b.type}",
                f"cast one of them: CAST({b.name} AS {a.type}) AS {b.name}_key",
            )
    return None
