"""Where the nodes of sqlglot's trees stand in the text."""

from __future__ import annotations

from sqlglot import exp


def span_of(node: exp.Expression) -> tuple[int, int]:
    """First and one-past-last code point of a node; of its parts if it has no mark of its own; (0, 0) if nothing is marked."""
    own: tuple[int, int] | None = node.meta.get("span")
    if own is not None:
        return own
    if "start" in node.meta:
        return node.meta["start"], node.meta["end"] + 1
    parts = [c for value in node.args.values() for c in (value if isinstance(value, list) else [value])]
    inner = [s for c in parts if isinstance(c, exp.Expression) and (s := span_of(c)) != (0, 0)]
    return (min(s for s, _ in inner), max(e for _, e in inner)) if inner else (0, 0)
