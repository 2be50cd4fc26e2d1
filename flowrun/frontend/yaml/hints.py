"""What the document says of a node besides its meaning: uid, name, parallelism, slot sharing group, chaining."""

from __future__ import annotations

from dataclasses import replace

from flowrun.core.row_errors import LetterLimit, OnError
from flowrun.errors import Location
from flowrun.frontend.trees.spec import Section
from flowrun.plan.nodes import NodeHints


def node_hints(group: str, name: str, section: Section, at: Location) -> NodeHints:
    """Hints of the main node of a source, step or sink.

    Its place in the document, such as `steps.totals`, stands in for a uid that is not given: names are unique and seldom change.

    Args:
        group: `sources`, `steps` or `sinks`.
        name: its key there.
        section: its value.
        at: its place.
    """
    mode, to, limit = _on_error(section)
    return NodeHints(
        name=section.text("name") or name,
        uid=section.text("uid"),
        place=f"{group}.{name}",
        parallelism=section.integer("parallelism"),
        slot_sharing_group=section.text("slot_sharing_group"),
        chaining=section.flag("chaining") is not False,
        location=at,
        on_error=mode,
        letters_to=to,
        letter_limit=limit,
    )


def _on_error(section: Section) -> tuple[OnError | None, str | None, LetterLimit | None]:
    """What becomes of rows that fail, the sink of dead letters, and how many of these there may be."""
    given = section.section("on_error")
    if given is None:
        mode = section.text("on_error")
        return None if mode is None else OnError(mode), None, None
    limit = LetterLimit(given.integer("max_records"), given.number("max_percent"))
    return (
        OnError(given.text("mode") or OnError.DEAD_LETTER.value),
        given.text("to"),
        None if limit == LetterLimit() else limit,
    )


def part_hints(hints: NodeHints, part: str) -> NodeHints:
    """Hints of a further node that the same step needs, e.g. its filter before its window.

    >>> part_hints(NodeHints(name="totals", uid="t"), "filter").name
    'totals.filter'
    """
    uid, place = (f"{stem}:{part}" if stem else None for stem in (hints.uid, hints.place))
    return replace(hints, name=f"{hints.name}.{part}", uid=uid, place=place, state_ttl_ms=())
