"""Plans for people and programs: indented text, JSON and mermaid, each the same for the same plan.

Values of secret options are masked in every form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flowrun.api.changelog import ChangelogMode
from flowrun.core.local_time import UTC_ZONE
from flowrun.core.schema import Schema
from flowrun.core.semantics import WatermarkEmit
from flowrun.core.units import format_duration
from flowrun.plan import nodes, windows
from flowrun.plan.co_process import CoProcess
from flowrun.plan.explain_relational import relational_details
from flowrun.plan.expressions import ColumnRef, Expression
from flowrun.plan.relational import WindowTableFunction

_MASK = "***"


def explain_plan(plan: nodes.Plan, form: str = "text", modes: Mapping[int, ChangelogMode] | None = None) -> str:
    """The plan as `text`, `json` or `mermaid`.

    Args:
        plan: what is shown.
        form: how.
        modes: changes that the nodes make, by `id` (`changelog_modes`), which are then shown where there are any.

    Raises:
        ValueError: another form was asked for.
    """
    match form:
        case "text":
            return plan_text(plan, modes)
        case "json":
            return json.dumps(plan_json(plan, modes), indent=2, ensure_ascii=False)
        case "mermaid":
            return plan_mermaid(plan, modes)
        case _:
            raise ValueError(f"a plan can be shown as text, json or mermaid, not {form}")


def plan_text(plan: nodes.Plan, modes: Mapping[int, ChangelogMode] | None = None) -> str:
    """Each sink with what it reads indented below it; a node that occurs again is shown by its number only."""
    numbers = _numbers(plan)
    shown: set[int] = set()
    lines: list[str] = []
    # node, what stands before its title, what stands before everything below it
    stack: list[tuple[nodes.PlanNode, str, str]] = [(sink, "", "") for sink in reversed(plan.sinks)]
    while stack:
        node, first, rest = stack.pop()
        number = numbers[id(node)]
        if number in shown:
            lines.append(f"{first}#{number} {_title(node)} (above)")
            continue
        shown.add(number)
        lines.append(f"{first}#{number} {_title(node)}")
        gap = rest + ("│  " if node.inputs else "   ")
        lines += [f"{gap}{key}: {_flat(value)}" for key, value in _described(node, modes).items()]
        last = len(node.inputs) - 1
        stack += [
            (child, rest + ("└─ " if i == last else "├─ "), rest + ("   " if i == last else "│  "))
            for i, child in reversed(list(enumerate(node.inputs)))
        ]
    return "\n".join(lines)


def plan_json(plan: nodes.Plan, modes: Mapping[int, ChangelogMode] | None = None) -> dict[str, Any]:
    """The plan as JSON values: nodes in execution order, each with its number, inputs, columns and details."""
    numbers = _numbers(plan)
    return {
        "name": plan.name,
        "nodes": [
            {
                "id": numbers[id(node)],
                "kind": _kind(node),
                "name": node.hints.name,
                "uid": node.hints.uid,
                "parallelism": node.hints.parallelism,
                "inputs": [numbers[id(i)] for i in node.inputs],
                "columns": [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in node.schema],
                "event_time": node.event_time,
                **_described(node, modes),
            }
            for node in nodes.walk_plan(plan)
        ],
    }


def plan_mermaid(plan: nodes.Plan, modes: Mapping[int, ChangelogMode] | None = None) -> str:
    """The plan as a mermaid flow chart, sources at the left."""
    numbers = _numbers(plan)
    lines = ["flowchart LR"]
    for node in nodes.walk_plan(plan):
        details = [f"{k}: {_flat(v)}" for k, v in _described(node, modes).items()]
        label = "<br/>".join(_escaped(t) for t in (_title(node), *details))
        lines.append(f'  n{numbers[id(node)]}["{label}"]')
        lines += [f"  n{numbers[id(i)]} --> n{numbers[id(node)]}" for i in node.inputs]
    return "\n".join(lines)


def _numbers(plan: nodes.Plan) -> dict[int, int]:
    """A number for each node by identity, inputs before readers."""
    return {id(node): number for number, node in enumerate(nodes.walk_plan(plan), start=1)}


def _kind(node: nodes.PlanNode) -> str:
    return type(node).__name__


def _title(node: nodes.PlanNode) -> str:
    name = f" {node.hints.name}" if node.hints.name else ""
    marks = [f"uid={node.hints.uid}"] if node.hints.uid else []
    marks += [f"parallelism={node.hints.parallelism}"] if node.hints.parallelism else []
    marks += [f"slot_sharing_group={node.hints.slot_sharing_group}"] if node.hints.slot_sharing_group else []
    marks += [] if node.hints.chaining else ["chaining=off"]
    if node.hints.state_ttl_ms:
        times = ("default" if t is None else format_duration(t) for t in node.hints.state_ttl_ms)
        marks.append(f"state_ttl={'/'.join(times)}")
    return f"{_kind(node)}{name}" + (f" [{', '.join(marks)}]" if marks else "")


def _described(node: nodes.PlanNode, modes: Mapping[int, ChangelogMode] | None) -> dict[str, Any]:
    """What a node does, and which changes it makes (a sink: gets) if it does not only insert."""
    mode = ChangelogMode.APPEND if modes is None else modes[id(node)]
    return _details(node) | ({} if mode is ChangelogMode.APPEND else {"changes": mode.kinds})


def _details(node: nodes.PlanNode) -> dict[str, Any]:
    """What a node does, as JSON values in a fixed order; what it leaves at its default is left out."""
    match node:
        case nodes.Scan():
            return _scan_details(node)
        case nodes.Calc():
            details = {"where": str(node.condition)} if node.condition is not None else {}
            return {**details, "select": _projections(node)}
        case nodes.Union():
            return {}
        case nodes.Split():
            return {"branches": {name: str(condition) for name, condition in node.branches}}
        case nodes.SideOutput():
            return {"tag": node.tag}
        case nodes.PythonMap():
            return {
                "function": node.function,
                "calls": "rows" if node.row else "batches",
                "columns_out": str(node.schema),
                **_side_outputs(node.side_outputs),
            }
        case nodes.AsyncMap():
            return _async_details(node)
        case nodes.Process():
            return _process_details(node)
        case CoProcess():
            return _co_process_details(node)
        case nodes.WindowAggregate():
            return _window_details(node)
        case nodes.Sink():
            keys = node.table.written_metadata
            written = {"writes": [n for n in node.schema.names if n not in keys]}
            return {
                **_table(node.table),
                **written,
                **({"metadata": [f"{k} = {n}" for n, k in keys.items()]} if keys else {}),
            }
        case _:
            window = window_text(node.window) if isinstance(node, WindowTableFunction) else None
            return relational_details(node, window)


def _scan_details(node: nodes.Scan) -> dict[str, Any]:
    details: dict[str, Any] = {**_table(node.table), "reads": [str(f) for f in node.physical]}
    if not all(isinstance(p, ColumnRef) for p in node.projections) or node.schema.names != node.physical.names:
        details["select"] = [_named(p, n) for p, n in zip(node.projections, node.schema.names, strict=True)]
    if node.watermark is not None:
        details["watermark"] = _watermark(node.watermark)
    if node.filters:
        shown = (f"{f.column} {f.comparison.value} {'' if f.value is None else repr(f.value)}" for f in node.filters)
        details["pushed"] = [s.strip() for s in shown]
    return details


def _table(table: nodes.TableReference) -> dict[str, Any]:
    options = {k: _MASK if k in table.secret_options else str(v) for k, v in sorted(table.options.items())}
    details: dict[str, Any] = {"connector": table.connector}
    if table.format is not None:
        details["format"] = table.format
    if options:
        details["options"] = options
    if table.partition_keys:
        details["partition_by"] = list(table.partition_keys)
    return details


def _watermark(mark: nodes.WatermarkSpec) -> str:
    time = mark.column or str(mark.time)
    match mark.kind:
        case nodes.WatermarkKind.BOUNDED:
            text = f"{time} - {format_duration(mark.delay_ms)}"
        case nodes.WatermarkKind.MONOTONOUS:
            text = f"{time}, monotonous, on disorder {mark.on_disorder.value}"
        case nodes.WatermarkKind.PUNCTUATED:
            text = f"{time}, punctuated by {mark.punctuation}"
        case nodes.WatermarkKind.SOURCE:
            text = f"{time}, by watermarks of the source"
        case nodes.WatermarkKind.NONE:
            text = f"{time}, at the end of input only"
    if mark.emit is WatermarkEmit.EVENT:
        text += ", sent with each row"
    return text + (f", idle after {format_duration(mark.idle_timeout_ms)}" if mark.idle_timeout_ms is not None else "")


def _projections(node: nodes.Calc) -> list[str]:
    return [_named(p, n) for p, n in zip(node.projections, node.schema.names, strict=True)]


def _named(expression: Expression, name: str) -> str:
    return name if str(expression) == name else f"{expression} AS {name}"


def _process_details(node: nodes.Process) -> dict[str, Any]:
    details: dict[str, Any] = {"function": node.function}
    if node.arguments:
        details["with"] = {name: str(value) for name, value in node.arguments.items()}
    if node.keys is not None:
        details["keys"] = [node.input.schema.names[k] for k in node.keys]
        details["null_keys"] = node.null_keys.value
    if (fires := node.windows) is not None:
        details["window"] = f"{window_text(fires.window)} of {fires.domain.value} time"
        details |= _firing_details(fires)
    if node.called is not None and node.called.time is not None:
        details["on_time"] = node.input.schema.names[node.called.time]
    return {**details, "columns_out": str(node.schema), **_side_outputs(node.side_outputs)}


def _co_process_details(node: CoProcess) -> dict[str, Any]:
    details: dict[str, Any] = {"function": node.function}
    if node.arguments:
        details["with"] = {name: str(value) for name, value in node.arguments.items()}
    if node.key_names:
        details["keys"] = list(node.key_names)
        details["null_keys"] = node.null_keys.value
    if node.broadcast:
        details["broadcast"] = "the second input"
    return {**details, "columns_out": str(node.schema), **_side_outputs(node.side_outputs)}


def _side_outputs(schemas: Mapping[str, Schema]) -> dict[str, Any]:
    return {"side_outputs": {name: f"({schema})" for name, schema in schemas.items()}} if schemas else {}


def _async_details(node: nodes.AsyncMap) -> dict[str, Any]:
    details: dict[str, Any] = {"function": node.function}
    if node.arguments:
        details["with"] = {name: str(value) for name, value in node.arguments.items()}
    details["mode"] = "ordered" if node.ordered else "unordered"
    details["capacity"] = node.capacity
    if node.timeout_ms is not None:
        details["timeout"] = format_duration(node.timeout_ms)
    if node.retry is not None:
        details["retries"] = node.retry.max_attempts
    return {**details, "columns_out": str(node.schema), **_side_outputs(node.side_outputs)}


def _window_details(node: nodes.WindowAggregate) -> dict[str, Any]:
    details: dict[str, Any] = {
        "keys": [node.input.schema.names[k] for k in node.keys],
        "window": f"{window_text(node.window)} of {node.domain.value} time",
        "aggregates": [f"{a} AS {a.name}" for a in node.aggregates],
    }
    details |= _firing_details(node)
    if node.output_mode is not None:
        details["output_mode"] = node.output_mode.value
    if node.keys:
        details["null_keys"] = node.null_keys.value
    return details


def _firing_details(node: nodes.WindowAggregate | nodes.FunctionWindows) -> dict[str, Any]:
    """When windows fire, and which rows are late for them."""
    details: dict[str, Any] = {}
    if node.allowed_lateness_ms:
        details["allowed_lateness"] = format_duration(node.allowed_lateness_ms)
    if node.late_tag is not None:
        details["late_output"] = node.late_tag
    if (trigger := node.trigger) is not None:
        parts = [f"count {trigger.count}"] if trigger.count is not None else []
        parts += [f"every {format_duration(trigger.every_ms)}"] if trigger.every_ms is not None else []
        parts += [f"late count {trigger.late_count}"] if trigger.late_count != 1 else []
        parts += [f"delta of {trigger.delta} over {trigger.threshold}"] if trigger.delta is not None else []
        parts += [trigger.function.reference] if trigger.function is not None else []
        parts += ["purge"] if trigger.purge else []
        details["trigger"] = ", ".join(parts)
    if (evictor := node.evictor) is not None:
        last = (
            f"last {evictor.count} rows"
            if evictor.count is not None
            else f"last {format_duration(evictor.time_ms or 0)}"
        )
        details["evictor"] = last if evictor.function is None else evictor.function.reference
    return details


def window_text(window: windows.WindowSpec) -> str:
    """A window as a few words.

    >>> window_text(windows.SlidingWindow(60_000, 20_000))
    'sliding 1m every 20s'
    """
    match window:
        case windows.TumblingWindow():
            text = f"tumbling {format_duration(window.size_ms)}"
        case windows.SlidingWindow():
            text = f"sliding {format_duration(window.size_ms)} every {format_duration(window.slide_ms)}"
        case windows.CumulativeWindow():
            text = f"cumulative {format_duration(window.size_ms)} by {format_duration(window.step_ms)}"
        case windows.SessionWindow():
            text = f"session with gap {format_duration(window.gap_ms)}"
        case windows.CountWindow():
            every = f" every {window.slide}" if window.slide != window.size else ""
            return f"count {window.size}{every}"
        case windows.GlobalWindow():
            return "global"
        case windows.CustomWindow():
            return f"of {window.assigner.reference}"
    if not isinstance(window, windows.SessionWindow) and window.offset_ms:
        sign = "-" if window.offset_ms < 0 else ""
        text += f" offset {sign}{format_duration(abs(window.offset_ms))}"
    if window.time_zone != UTC_ZONE:
        text += f" in {window.time_zone}"
    return text


def _flat(value: Any) -> str:
    """A detail on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{k} = {v}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) if value else "(none)"
    return str(value)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "#quot;").replace("<", "&lt;").replace(">", "&gt;")
