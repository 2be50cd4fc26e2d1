"""What the document says of a node besides its meaning: uid, name, parallelism, slot sharing group, chaining."""

from __future__ import annotations

from dataclasses import replace

from flowrun.errors import Location
from flowrun.frontend.yaml.spec import Section
from flowrun.plan.nodes import NodeHints


def node_hints(name: str, section: Section, at: Location) -> NodeHints:
    """Hints of the main node of a source, step or sink."""
    return NodeHints(
        name=section.text("name") or name,
        uid=section.text("uid"),
        parallelism=section.integer("parallelism"),
        slot_sharing_group=section.text("slot_sharing_group"),
        chaining=section.flag("chaining") is not False,
        location=at,
    )


def part_hints(hints: NodeHints, part: str) -> NodeHints:
    """Hints of a further node that the same step needs, e.g. its filter before its window.

    >>> part_hints(NodeHints(name="totals", uid="t"), "filter").name
    'totals.filter'
    """
    return replace(hints, name=f"{hints.name}.{part}", uid=f"{hints.uid}:{part}" if hints.uid else None)
