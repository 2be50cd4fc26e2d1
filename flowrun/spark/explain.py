"""Explains how a plan runs on Spark: which steps are native and which are hosted, and Spark's own plan of each sink."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from flowrun.core.record import record
from flowrun.plan.explain import plan_json
from flowrun.plan.nodes import Sink, walk_plan
from flowrun.spark.frame import SparkFrame
from flowrun.spark.translation import SparkPlan

NATIVE = "native"


@record
class ExplainedStep:
    """A node of a plan on Spark. `hosted` says why it runs the streaming operators; None: it is native."""

    number: int
    kind: str
    name: str | None
    inputs: tuple[int, ...]
    hosted: str | None

    @property
    def title(self) -> str:
        """The kind and the name of the node."""
        return self.kind + (f" {self.name}" if self.name else "")

    @property
    def execution(self) -> str:
        """`native`, or `hosted: ` and the reason."""
        return NATIVE if self.hosted is None else f"hosted: {self.hosted}"


def explain_on_spark(translated: SparkPlan, form: str = "text", *, verbose: bool = False) -> str:
    """A translated plan as a text in the form `text`, `json` or `mermaid`; nothing is run.

    Args:
        translated: the plan.
        form: the form.
        verbose: whether `text` includes Spark's own plans.

    Raises:
        ValueError: there is no such form.
    """
    match form:
        case "text":
            return _text(translated, verbose)
        case "json":
            return json.dumps(_json(translated), indent=2, ensure_ascii=False)
        case "mermaid":
            return _mermaid(translated)
        case _:
            raise ValueError(f"a plan can be shown as text, json or mermaid, not {form}")


def explained_steps(translated: SparkPlan) -> tuple[ExplainedStep, ...]:
    """All nodes as steps; a node comes after the nodes that it reads."""
    return tuple(
        ExplainedStep(
            shown["id"], shown["kind"], shown["name"], tuple(shown["inputs"]), translated.results[id(node)].hosted
        )
        for node, shown in zip(walk_plan(translated.plan), plan_json(translated.plan)["nodes"], strict=True)
    )


def _text(translated: SparkPlan, verbose: bool) -> str:
    steps = explained_steps(translated)
    width = max((len(_numbered(s)) for s in steps), default=0)
    lines = [f"{_numbered(step).ljust(width)}  {step.execution}{_reads(step)}" for step in steps]
    for sink, frame in translated.outputs if verbose else ():
        lines += ["", f"Spark's plan of sink '{sink.table.name}':", _spark_plan(frame)]
    return "\n".join(lines)


def _numbered(step: ExplainedStep) -> str:
    return f"#{step.number} {step.title}"


def _reads(step: ExplainedStep) -> str:
    """The steps that a step reads, unless that is only the step before it."""
    if not step.inputs or step.inputs == (step.number - 1,):
        return ""
    return "  reads " + ", ".join(f"#{n}" for n in step.inputs)


def _json(translated: SparkPlan) -> dict[str, Any]:
    shown = plan_json(translated.plan)
    for node, step in zip(shown["nodes"], explained_steps(translated), strict=True):
        node["execution"] = NATIVE if step.hosted is None else "hosted"
        node["reason"] = step.hosted
    shown["sinks"] = [{"name": sink.table.name, "spark_plan": plan} for sink, plan in _spark_plans(translated)]
    return shown


def _mermaid(translated: SparkPlan) -> str:
    lines = ["flowchart LR"]
    for step in explained_steps(translated):
        label = "<br/>".join(_escaped(t) for t in (step.title, step.execution))
        lines.append(f'  n{step.number}["{label}"]' + ("" if step.hosted is None else ":::hosted"))
        lines += [f"  n{number} --> n{step.number}" for number in step.inputs]
    return "\n".join([*lines, "  classDef hosted stroke-dasharray: 4"])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def _spark_plans(translated: SparkPlan) -> Iterator[tuple[Sink, str]]:
    return ((sink, _spark_plan(frame)) for sink, frame in translated.outputs)


def _spark_plan(frame: SparkFrame) -> str:
    """Spark's physical plan, which PySpark can only print, also for a Connect session."""
    printed = StringIO()
    with redirect_stdout(printed):
        frame.data.explain(mode="formatted")
    return printed.getvalue().strip()
