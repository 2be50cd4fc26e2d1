"""What all graphs have in common when they are shown: boxes with facts, arrows with labels; and how that becomes text or Mermaid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from flowrun.core.record import record
from flowrun.core.resources import ResourceSpec
from flowrun.core.schema import Schema
from flowrun.graph.partitioner import KeyGroupPartitioner, Partitioner

_MERMAID_ARROWS = 300
"""Mermaid refuses more than 500 edges; beyond this number arrows are drawn between groups instead of boxes."""


class Format(Enum):
    """How a graph is shown."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


@record
class Arrow:
    """Rows that come from box `source`; `label` is short, `facts` are further properties for the text form."""

    source: int
    label: str = ""
    facts: tuple[str, ...] = ()


@record
class Box:
    """One node.

    Attributes:
        number: 1, 2, … in topological order: how the node is referred to.
        title: its name.
        kind: short word before the name; empty: none.
        facts: properties, shown in one line.
        details: further lines, one each.
        group: title of the subgraph that the box is drawn in; None: none.
        virtual: drawn rounded: no operator of its own.
    """

    number: int
    title: str
    kind: str = ""
    facts: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    group: str | None = None
    virtual: bool = False


@record
class Drawing:
    """A graph to be shown; `json` is its JSON form, which has a layout of its own."""

    title: str
    facts: tuple[str, ...]
    boxes: tuple[Box, ...]
    json: Any
    mermaid: str | None = None
    """Overrides the Mermaid form that follows from the boxes."""
    tables: tuple[tuple[str, ...], ...] = ()
    """Lines below the boxes in the text form: paragraphs, the first line of each its heading."""


def render_drawing(drawing: Drawing, output: Format) -> str:
    """The graph in one format, without a newline at the end; the same in every run."""
    match output:
        case Format.TEXT:
            return _text(drawing)
        case Format.JSON:
            return json.dumps(drawing.json, indent=2, ensure_ascii=False)
        case Format.MERMAID:
            return drawing.mermaid or boxes_as_mermaid(drawing.boxes)


def _text(drawing: Drawing) -> str:
    lines = [f"{drawing.title}: {', '.join(drawing.facts)}"]
    number_width = len(f"[{len(drawing.boxes)}]")
    kind_width = max((len(box.kind) for box in drawing.boxes), default=0)
    indent = " " * (number_width + 1)
    for box in drawing.boxes:
        kind = f"{box.kind:<{kind_width}}  " if kind_width else ""
        lines += ["", f"{f'[{box.number}]':<{number_width}} {kind}{box.title}"]
        if box.facts:
            lines.append(indent + " · ".join(box.facts))
        for arrow in box.arrows:
            lines.append(f"{indent}<- [{arrow.source}] " + ", ".join(filter(None, (arrow.label, *arrow.facts))))
        lines += [indent + detail for detail in box.details]
    for heading, *rows in drawing.tables:
        lines += ["", heading, *(f"  {row}" for row in rows)]
    return "\n".join(line.rstrip() for line in lines)


def boxes_as_mermaid(boxes: Sequence[Box]) -> str:
    """A Mermaid flow chart of boxes and arrows, boxes of one group in a subgraph."""
    lines = ["flowchart LR"]
    groups: dict[str | None, list[Box]] = {}
    for box in boxes:
        groups.setdefault(box.group, []).append(box)
    names: dict[str | None, str] = {}
    for group, members in groups.items():
        if group is None:
            lines += [f"  {mermaid_box(box)}" for box in members]
            continue
        names[group] = f"g{len(names) + 1}"
        lines.append(f'  subgraph {names[group]}["{mermaid_text(group)}"]')
        lines += [f"    {mermaid_box(box)}" for box in members]
        lines.append("  end")
    arrows = [(f"n{arrow.source}", f"n{box.number}", arrow.label) for box in boxes for arrow in box.arrows]
    if len(arrows) > _MERMAID_ARROWS and None not in groups:
        home = {box.number: names[box.group] for box in boxes}
        arrows = list(dict.fromkeys((home[int(s[1:])], home[int(t[1:])], label) for s, t, label in arrows))
    return "\n".join([*lines, *(f"  {mermaid_arrow(*arrow)}" for arrow in arrows)])


def mermaid_box(box: Box) -> str:
    """One node of a flow chart: its name, and its first fact below."""
    below = "".join(f"<br/>{mermaid_text(text)}" for text in filter(None, (box.kind, *box.facts[:1])))
    opening, closing = ("([", "])") if box.virtual else ("[", "]")
    return f'n{box.number}{opening}"{mermaid_text(box.title)}{below}"{closing}'


def mermaid_arrow(source: str, target: str, label: str) -> str:
    """One edge of a flow chart."""
    return f'{source} -->|"{mermaid_text(label)}"| {target}' if label else f"{source} --> {target}"


def mermaid_text(text: str) -> str:
    """Text that is safe inside a quoted Mermaid label.

    >>> mermaid_text('a -> "b" #1')
    'a -&gt; &quot;b&quot; &num;1'
    """
    for character, entity in (("&", "&amp;"), ("#", "&num;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return " ".join(text.split())


def partitioner_label(partitioner: Partitioner, schema: Schema) -> str:
    """A partitioner with the names of its key columns: `HASH[user_id]`; `schema` is that of the rows on the edge."""
    if isinstance(partitioner, KeyGroupPartitioner) and all(key < len(schema) for key in partitioner.keys):
        return f"HASH[{', '.join(schema.names[key] for key in partitioner.keys)}]"
    return partitioner.label


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "edge"), counted(2, "vertex", "vertices")
    ('1 edge', '2 vertices')
    """
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def resource_facts(smallest: ResourceSpec, preferred: ResourceSpec) -> Iterable[str]:
    """Resources that were set, e.g. `min 1 cores 64 MiB`."""
    for what, spec in (("min", smallest), ("preferred", preferred)):
        parts = [f"{spec.cpu_cores:g} cores"] if spec.cpu_cores else []
        if spec.memory_bytes:
            parts.append(f"{spec.memory_bytes / (1 << 20):g} MiB")
        if parts:
            yield f"{what} {' '.join(parts)}"
