"""What differs in meaning between two versions of a pipeline: pure, from their plans as documents (`making.plan_document`).

Steps are found again by their uid, else by kind and name, else, if all else about them is the same, by what they do: such a one is renamed.
What is compared is the optimised plan: layout, comments, the order of statements, names of views and whatever else the optimiser
sees through make no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from flowrun.core.record import record

_SOURCE, _SINK = "Scan", "Sink"
_RUNNING = frozenset({"parallelism", "slot_sharing_group", "chaining"})
"""What is said of a step that does not change its rows."""
_ROW_SETTINGS = frozenset(
    {
        "mode",
        "embedded_mode",
        "state_ttl",
        "on_error",
        "dead_letters",
        "dead_letter_sink",
        "time_zone",
        "cdc_events_duplicate",
        "checkpoint.mode",
    }
)
_FOR_EVER = ("state_ttl", "0ms")
"""How plans say that state has no time to live."""
_ROW_SETTING_PARTS = ("constraints.", "letter_limit.")
_NOT_COMPARED = frozenset({"id", "kind", "name", "uid", "inputs", "columns", "columns_out", "event_time", "pushed"})
"""What is said otherwise, or follows from the rest, as filters that connectors are told of do."""


class Effect(Enum):
    """What a difference has an effect on."""

    ROWS = "rows"
    """On what is computed."""
    RUNNING = "running"
    """On how it runs."""
    NONE = "none"
    """On nothing but names."""


class Kind(Enum):
    """What happened to a part of the pipeline."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    RENAMED = "renamed"


@record
class FieldChange:
    """One thing about a part: its values before and after; None: it was, or is, not there."""

    name: str
    before: str | None
    after: str | None


@record
class Difference:
    """One part of a pipeline that differs.

    Attributes:
        kind: what happened to it.
        part: `source`, `step`, `sink`, `settings`, `module` or `pipeline`.
        name: of the part as it is now, or was if it is gone.
        effect: on what.
        fields: what changed about it.
    """

    kind: Kind
    part: str
    name: str
    effect: Effect
    fields: tuple[FieldChange, ...] = ()


Document = Mapping[str, Any]
Node = Mapping[str, Any]


def plan_differences(
    before: Document,
    after: Document,
    modules_before: Mapping[str, str] | None = None,
    modules_after: Mapping[str, str] | None = None,
) -> list[Difference]:
    """What differs, sources first, then steps, sinks, modules, settings.

    Args:
        before: the plan of the one version.
        after: that of the other.
        modules_before: path → digest of the modules of the one.
        modules_after: those of the other.

    >>> old = {"nodes": [{"id": 1, "kind": "Calc", "name": "a", "inputs": [], "where": "x > 1"}], "settings": {}}
    >>> new = {"nodes": [{"id": 7, "kind": "Calc", "name": "a", "inputs": [], "where": "x > 2"}], "settings": {}}
    >>> [(d.kind.value, d.part, d.name, d.fields[0].after) for d in plan_differences(old, new)]
    [('changed', 'step', 'a (Calc)', 'x > 2')]
    """
    pairs = _pairs(before["nodes"], after["nodes"])
    found = [*_of_nodes(before["nodes"], after["nodes"], pairs)]
    found += _of_modules(modules_before or {}, modules_after or {})
    found += _of_settings(before.get("settings", {}), after.get("settings", {}))
    if before.get("name") != after.get("name"):
        change = FieldChange("name", _text(before.get("name")), _text(after.get("name")))
        found.append(Difference(Kind.CHANGED, "pipeline", str(after.get("name")), Effect.RUNNING, (change,)))
    order = ("source", "step", "sink", "module", "settings", "pipeline")
    return sorted(found, key=lambda d: order.index(d.part))


def hidden_difference(before: str, after: str) -> list[Difference]:
    """What the fingerprints of two job graphs tell where their plans tell nothing: something that plans do not show is different.

    >>> hidden_difference("a=1,b=2,settings=3", "b=2,a=1,settings=4"), len(hidden_difference("a=1", "a=2"))
    ([], 1)
    """
    one, two = ({part for part in text.split(",") if not part.startswith("settings=")} for text in (before, after))
    if one == two:
        return []
    change = FieldChange("operators", "as compiled", "compiled to something else, which the plan does not show")
    return [Difference(Kind.CHANGED, "pipeline", "", Effect.ROWS, (change,))]


def changes_meaning(differences: Sequence[Difference]) -> bool:
    """Whether any of them has an effect.

    >>> changes_meaning([Difference(Kind.RENAMED, "step", "a", Effect.NONE)])
    False
    """
    return any(d.effect is not Effect.NONE for d in differences)


# ---- steps


def _pairs(before: Sequence[Node], after: Sequence[Node]) -> dict[int, int]:
    """Number of a node before → of the same one after."""
    found: dict[int, int] = {}
    place = _by_place(before, after, found)
    # Each node that is found by its place gives places to those that it reads.
    for key in (_by_uid, _by_name, _by_what_it_does, *(place for _ in before)):
        taken = set(found.values())
        left_before = [n for n in before if n["id"] not in found]
        left_after = [n for n in after if n["id"] not in taken]
        more = {one["id"]: other["id"] for one, other in _matched(left_before, left_after, key)}
        found.update(more)
        if not more and key is place:
            break
    return found


def _matched(before: Sequence[Node], after: Sequence[Node], key: Any) -> Iterator[tuple[Node, Node]]:
    """Pairs of equal keys that occur once on each side."""
    one, other = _unique(before, key), _unique(after, key)
    yield from ((one[k], other[k]) for k in one.keys() & other.keys())


def _unique(nodes: Sequence[Node], key: Any) -> dict[Any, Node]:
    found: dict[Any, list[Node]] = {}
    for node in nodes:
        value = key(node)
        if value is not None:
            found.setdefault(value, []).append(node)
    return {value: same[0] for value, same in found.items() if len(same) == 1}


def _by_uid(node: Node) -> Any:
    return None if node.get("uid") is None else (node["kind"], node["uid"])


def _by_name(node: Node) -> Any:
    return None if node.get("name") is None else (node["kind"], node["name"])


def _by_what_it_does(node: Node) -> Any:
    return node["kind"], repr(_compared(node)), repr(node.get("columns"))


def _by_place(before: Sequence[Node], after: Sequence[Node], pairs: Mapping[int, int]) -> Any:
    """By what reads a node, and which of its inputs it is; `pairs` may grow meanwhile."""
    readers = {side: _readers(nodes) for side, nodes in (("before", before), ("after", after))}
    sides = {id(n): "before" for n in before} | {id(n): "after" for n in after}

    def key(node: Node) -> Any:
        side = sides[id(node)]
        reader = readers[side].get(node["id"])
        if reader is None:
            return None
        number, index = reader
        known = pairs.get(number) if side == "before" else (number if number in pairs.values() else None)
        return None if known is None else (node["kind"], known, index)

    return key


def _readers(nodes: Sequence[Node]) -> dict[int, tuple[int, int]]:
    """Number of a node → (the one that reads it, as which input), of nodes that one other reads."""
    found: dict[int, list[tuple[int, int]]] = {}
    for node in nodes:
        for index, number in enumerate(node["inputs"]):
            found.setdefault(number, []).append((node["id"], index))
    return {number: readers[0] for number, readers in found.items() if len(readers) == 1}


def _of_nodes(before: Sequence[Node], after: Sequence[Node], pairs: Mapping[int, int]) -> Iterator[Difference]:
    old = {n["id"]: n for n in before}
    new = {n["id"]: n for n in after}
    quiet: list[Difference] = []
    loud = False
    for number, other in pairs.items():
        one, two = old[number], new[other]
        changes = [*_field_changes(_compared(one), _compared(two))]
        if one["kind"] in (_SOURCE, _SINK):
            changes += _column_changes(one, two)
        changes += _input_changes(one, two, old, new, pairs)
        loud = loud or bool(changes)
        if changes:
            rows = [c for c in changes if c.name not in _RUNNING]
            yield Difference(
                Kind.CHANGED, _part(two), _name(two), Effect.ROWS if rows else Effect.RUNNING, tuple(changes)
            )
        elif one["kind"] not in (_SOURCE, _SINK) and (columns := _column_changes(one, two)):
            quiet.append(Difference(Kind.CHANGED, _part(two), _name(two), Effect.ROWS, tuple(columns)))
        if _name(one) != _name(two):
            renamed = FieldChange("name", _name(one), _name(two))
            yield Difference(Kind.RENAMED, _part(two), _name(two), Effect.NONE, (renamed,))
    for node in before:
        if node["id"] not in pairs:
            loud = True
            yield Difference(Kind.REMOVED, _part(node), _name(node), Effect.ROWS, _all_fields(node, is_before=True))
    taken = set(pairs.values())
    for node in after:
        if node["id"] not in taken:
            loud = True
            yield Difference(Kind.ADDED, _part(node), _name(node), Effect.ROWS, _all_fields(node, is_before=False))
    if not loud:  # else columns of steps follow from what is said above
        yield from quiet


def _compared(node: Node) -> dict[str, Any]:
    return {k: v for k, v in node.items() if k not in _NOT_COMPARED and v is not None}


def _field_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[FieldChange]:
    for name in dict.fromkeys((*before, *after)):
        one, two = before.get(name), after.get(name)
        if one == two:
            continue
        if isinstance(one, dict) or isinstance(two, dict):
            inner = _field_changes(
                one if isinstance(one, dict) else {}, two if isinstance(two, dict) else {}
            )  # options, branches
            yield from (FieldChange(f"{name}.{c.name}", c.before, c.after) for c in inner)
        elif isinstance(one, list) and isinstance(two, list) and sorted(map(str, one)) != sorted(map(str, two)):
            yield from (FieldChange(name, _text(v), None) for v in one if v not in two)
            yield from (FieldChange(name, None, _text(v)) for v in two if v not in one)
        else:
            yield FieldChange(name, _text(one), _text(two))


def _column_changes(before: Node, after: Node) -> list[FieldChange]:
    one = {c["name"]: _type(c) for c in before.get("columns", ())}
    two = {c["name"]: _type(c) for c in after.get("columns", ())}
    changes = [FieldChange(f"column {n}", one.get(n), two.get(n)) for n in dict.fromkeys((*one, *two))]
    found = [c for c in changes if c.before != c.after]
    if not found and list(one) != list(two):
        found.append(FieldChange("order of columns", ", ".join(one), ", ".join(two)))
    return found


def _type(column: Mapping[str, Any]) -> str:
    return str(column["type"]) + ("" if column["nullable"] else " NOT NULL")


def _input_changes(
    before: Node, after: Node, old: Mapping[int, Node], new: Mapping[int, Node], pairs: Mapping[int, int]
) -> list[FieldChange]:
    """Other inputs than before, unless a step that was put in between, or taken out, explains it."""
    given, found = before["inputs"], after["inputs"]
    if [pairs.get(i) for i in given] == list(found):
        return []
    taken = set(pairs.values())
    if any(i not in pairs for i in given) or any(i not in taken for i in found):
        return []
    return [FieldChange("reads", ", ".join(_name(old[i]) for i in given), ", ".join(_name(new[i]) for i in found))]


def _all_fields(node: Node, *, is_before: bool) -> tuple[FieldChange, ...]:
    shown = _compared(node)
    return tuple(
        FieldChange(n, _text(v) if is_before else None, None if is_before else _text(v)) for n, v in shown.items()
    )


def _part(node: Node) -> str:
    return {_SOURCE: "source", _SINK: "sink"}.get(node["kind"], "step")


def _name(node: Node) -> str:
    name = str(node.get("name") or node["kind"])
    return name if node["kind"] in (_SOURCE, _SINK) else f"{name} ({node['kind']})"


# ---- the rest


def _of_modules(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Difference]:
    for path in sorted(before.keys() | after.keys()):
        if path not in before:
            yield Difference(Kind.ADDED, "module", path, Effect.ROWS)
        elif path not in after:
            yield Difference(Kind.REMOVED, "module", path, Effect.ROWS)
        elif before[path] != after[path]:
            yield Difference(Kind.CHANGED, "module", path, Effect.ROWS)


def _of_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    one, two = ({k: v for k, v in side.items() if (k, v) != _FOR_EVER} for side in (before, after))
    changes = [*_field_changes(one, two)]
    rows = tuple(c for c in changes if c.name in _ROW_SETTINGS or c.name.startswith(_ROW_SETTING_PARTS))
    running = tuple(c for c in changes if c not in rows)
    if rows:
        yield Difference(Kind.CHANGED, "settings", "settings", Effect.ROWS, rows)
    if running:
        yield Difference(Kind.CHANGED, "settings", "settings", Effect.RUNNING, running)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "(none)"
    if isinstance(value, dict):
        return ", ".join(f"{k} = {v}" for k, v in value.items())
    return str(value)
