"""Differences between two versions as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from flowrun.core.printable import printable
from flowrun.runners.versions.plan_difference import Difference, Effect, FieldChange, Kind

_SIGNS = {Kind.ADDED: "+", Kind.REMOVED: "-", Kind.CHANGED: "~", Kind.RENAMED: "="}
_COLORS = {Kind.ADDED: "green", Kind.REMOVED: "red", Kind.CHANGED: "yellow", Kind.RENAMED: None}
_TITLES = {Effect.ROWS: "what is computed", Effect.RUNNING: "how it runs", Effect.NONE: "names only"}


def difference_lines(differences: Sequence[Difference]) -> Iterator[str]:
    """A line a part and a line a field of it, by what they have an effect on."""
    for effect, title in _TITLES.items():
        found = [d for d in differences if d.effect is effect]
        if not found:
            continue
        yield f"{title}:"
        for difference in found:
            name = "" if difference.part == difference.name else f" {difference.name}"
            head = f"  {_SIGNS[difference.kind]} {difference.part}{name}"
            yield click.style(printable(head), fg=_COLORS[difference.kind])
            yield from (printable(f"      {_field_line(change, difference.kind)}") for change in difference.fields)


def _field_line(change: FieldChange, kind: Kind) -> str:
    if kind in (Kind.ADDED, Kind.REMOVED):
        return f"{change.name}: {change.after if change.before is None else change.before}"
    if change.before is None:
        return f"{change.name}: + {change.after}"
    if change.after is None:
        return f"{change.name}: - {change.before}"
    return f"{change.name}: {change.before} -> {change.after}"


def differences_json(differences: Sequence[Difference]) -> list[dict[str, object]]:
    """The same as JSON values."""
    return [
        {
            "kind": d.kind.value,
            "part": d.part,
            "name": d.name,
            "effect": d.effect.value,
            "fields": [{"name": f.name, "before": f.before, "after": f.after} for f in d.fields],
        }
        for d in differences
    ]
