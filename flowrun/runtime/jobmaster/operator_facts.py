"""What is said of an operator to people who look into a job: its kind, and those of its settings by which rows come out, wait or go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from enum import Enum

from flowrun.api.operator import OperatorRecipe
from flowrun.api.source import Boundedness
from flowrun.runtime.job_details import Setting

_SETTINGS = {
    "domain": "time",
    "null_keys": "null_keys",
    "allowed_lateness_ms": "allowed_lateness_ms",
    "gap_ms": "window.gap_ms",
    "lower_ms": "lower_ms",
    "upper_ms": "upper_ms",
    "kind": "join",
    "outer": "outer",
    "ttl_ms": "ttl_ms",
    "time_zone": "time_zone",
}
"""Field of a spec → the name under which it is told."""
UNNAMED = "unnamed"
"""Begins the names under which expressions of columns without a name of the user are told."""
_STRATEGY = {"delay_ms": "watermark.delay_ms", "idle_timeout_ms": "watermark.idle_timeout_ms"}


def operator_kind(recipe: OperatorRecipe) -> str:
    """What kind of operator a recipe makes, as `explain --stage job` calls it.

    >>> from flowrun.operators.factories import CalcFactory
    >>> operator_kind(CalcFactory())
    'Calc'
    """
    return type(recipe).__name__.removesuffix("Factory")


def operator_facts(recipe: OperatorRecipe) -> dict[str, Setting]:
    """Settings by name: enumerations by their values, durations in ms.

    `condition` is the text of a filter's, or of a join's beyond its keys; `ttl_ms` how long state lives (0: for ever; of a regular join
    `left_ttl_ms` and `right_ttl_ms`); `window.size_ms` and the like of aligned windows; of sources `bounded`, and `watermark.kind`
    (None: only the source itself says how far time has come) and `pushed`,
    columns by conditions on which the source leaves out what cannot pass; of sinks `delivery`, and,
    where rows meet that the query tells apart, `sink.key` and `sink.row_key`, or `sink.superseded`; `unnamed.$3` is the expression of a
    column to which the user gave no name.

    >>> from flowrun.operators.factories import CalcFactory
    >>> operator_facts(CalcFactory())
    {}
    """
    return dict(_facts(recipe))


def _facts(recipe: OperatorRecipe) -> Iterator[tuple[str, Setting]]:
    for name, told in _SETTINGS.items():
        value = getattr(recipe, name, None)
        if isinstance(value, tuple) and name == "ttl_ms":
            yield from zip(("left_ttl_ms", "right_ttl_ms"), value, strict=True)
        elif isinstance(value, Enum) and isinstance(value.value, str):
            yield told, value.value
        elif isinstance(value, Enum):
            yield told, value.name.lower()
        elif isinstance(value, bool | int | str):
            yield told, value
    condition = getattr(getattr(recipe, "condition", None), "text", None)
    if isinstance(condition, str):
        yield "condition", condition
    for name, text in getattr(getattr(recipe, "projection", None), "unnamed", {}).items():
        yield f"{UNNAMED}.{name}", text
    assigner = getattr(recipe, "assigner", None)
    for field in fields(assigner) if assigner is not None and hasattr(assigner, "__dataclass_fields__") else ():
        value = getattr(assigner, field.name)
        if isinstance(value, int):
            yield f"window.{field.name}", value
    late_tag = getattr(recipe, "late_tag", None)
    if late_tag is not None:
        yield "late_output", late_tag.name
    yield from _of_endpoint(recipe)


def _of_endpoint(recipe: OperatorRecipe) -> Iterator[tuple[str, Setting]]:
    source, sink, strategy = (getattr(recipe, name, None) for name in ("source", "sink", "strategy"))
    boundedness = getattr(source, "boundedness", None)  # a table that a join asks has none
    if boundedness is not None:
        yield "bounded", boundedness is Boundedness.BOUNDED
    if filters := getattr(source, "filters", ()):
        yield "pushed", ", ".join(dict.fromkeys(f.column for f in filters))
    if strategy is not None:
        yield "watermark.kind", strategy.kind.name.lower() if strategy.generates else None
        for name, told in _STRATEGY.items():
            yield told, getattr(strategy, name)
    elif boundedness is not None:
        yield "watermark.kind", None
    if sink is not None:
        yield "delivery", sink.delivery.name.lower()
    meeting = getattr(recipe, "meeting", None)
    if meeting is not None and meeting.row_key is not None:
        yield "sink.key", ", ".join(meeting.key)
        yield "sink.row_key", ", ".join(meeting.row_key)
    if meeting is not None and meeting.superseded:
        yield "sink.superseded", meeting.superseded
