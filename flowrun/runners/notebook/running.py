"""Runs SQL and pipelines in the process of a notebook or a program, and gives their rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from flowrun.connectors.live_rows import listening
from flowrun.core.clock import SystemClock
from flowrun.core.record import record
from flowrun.core.units import parse_duration_ms
from flowrun.errors import PipelineError
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.plan.nodes import Plan, Sink
from flowrun.plan.rewrites.traversal import with_sinks
from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.embedded import start_embedded
from flowrun.runners.notebook.results import Result, results_of, sampled_results
from flowrun.runners.notebook.tables import HeldTables
from flowrun.runners.preview import Sample, preview_plan
from flowrun.runners.sql_session import SqlSession, placed_statements
from flowrun.runtime.job_status import JobResult

_LOOK_MS = 250


class LiveTables:
    """The tables that a cell of a notebook shows while its jobs run.

    Args:
        display: puts something into the output of the cell; gives what updates it.
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._shown: dict[Result, tuple[Any, int]] = {}

    def show(self, results: Iterable[Result]) -> None:
        """Show the rows that there are by now."""
        for result in results:
            changes = result.changes  # before the rows: what comes meanwhile is shown the next time
            handle, seen = self._shown.get(result, (None, -1))
            if handle is None:
                handle = self._display(result, display_id=True)
            elif seen != changes:
                handle.update(result)
            self._shown[result] = (handle, changes)

    def withdraw(self, result: Result) -> None:
        """Show it no more: it is given to the cell, which shows it."""
        handle, _ = self._shown.pop(result, (None, -1))
        if handle is not None:
            handle.update({"text/plain": ""}, raw=True)


@record(eq=False)
class RunResult:
    """What came of a run.

    Attributes:
        job: figures of the job.
        results: name → rows, of each `print` sink: it prints nothing here.
    """

    job: JobResult
    results: Mapping[str, Result] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Result:
        return self.results[name]


def sql(
    text: str,
    /,
    *,
    variables: Mapping[str, object] | None = None,
    settings: Mapping[str, object] | None = None,
    within: str | None = None,
    show: bool | None = None,
    **tables: Any,
) -> Result | None:
    """Run statements of SQL in this process, one after the other; gives the rows of the last query, None if there is none. What DESCRIBE,
    EXPLAIN and SHOW answer is printed.

        flowrun.sql("SELECT user_id, SUM(amount) AS total FROM orders GROUP BY user_id", orders=data_frame).pandas()

    A query over a source without end goes on until `within` is over, or until it is interrupted (Ctrl-C, the stop button): what it has
    given by then is its result, with event time at its end. After `SET 'execution.runtime-mode' = 'batch'` statements run on Spark.

    Args:
        text: one or more statements.
        variables: values for `${NAME}`.
        settings: by name, such as `{"parallelism": 4}`; as `--set settings.…`.
        within: how long a job may run, such as `10s`.
        show: whether rows are shown while they come; None: in notebooks only.
        tables: tables that Python has, by the names that the statements use: data frames, Arrow tables, `flowrun.table(…)`.

    Raises:
        PipelineError: a statement is wrong, or what is given is no table.
        JobFailedError: a job failed.
    """
    if not isinstance(text, str):
        raise PipelineError.of(
            f"a {type(text).__qualname__} is no SQL", "give statements as a text; flowrun.pipeline reads files"
        )
    limit = _limit(within)
    session, held, live = SqlSession(_texts(variables), _overrides(settings)), HeldTables(), _live_tables(show)
    last: Result | None = None
    try:
        for name, given in tables.items():
            session.compile(held.declare(name, given))
        for statement, before in placed_statements(text):
            compiled = session.compile(statement, before)
            held.refuse_writing(compiled.plan)
            for answer in compiled.outputs:
                sys.stdout.write(f"{answer}\n")
            if compiled.runs:
                if live is not None and last is not None:
                    live.show([last])  # nobody is given it
                results = results_of(compiled.optimised)
                if compiled.is_batch:
                    _run_as_batch(compiled, results, limit)
                else:
                    _run(compiled.job_graph, results, limit, live)
                last = next(reversed(results.values()), last)
    finally:
        held.release()
    if live is not None and last is not None:
        live.withdraw(last)
    return last


class Pipeline:
    """A pipeline file, to be run, looked at and drawn from Python."""

    def __init__(self, path: Path, variables: Mapping[str, str], overrides: Mapping[str, str]) -> None:
        self.path = path
        self._variables = variables
        self._overrides = overrides
        self._compiled = compile_pipeline(path, variables, overrides)

    def run(self, *, within: str | None = None, show: bool | None = None) -> RunResult:
        """Run it as a stream in this process, to its end, until `within` is over, or until it is interrupted.

        Raises:
            JobFailedError: the job failed.
        """
        plan = self._compiled.optimised
        captured = with_sinks(plan, tuple(map(_captured, plan.sinks)))
        results = results_of(captured)
        live = _live_tables(show)
        job = _run(_job_graph(captured), results, _limit(within), live)
        if live is not None:
            live.show(results.values())
        return RunResult(job, results)

    def preview(
        self, name: str | None = None, *, rows: int = 1_000, within: str = "10s"
    ) -> Mapping[str, Result] | Result:
        """What it makes of a sample of its input, without a trace: of one sink or step, or of each sink by its name.

        Raises:
            PipelineError: there is no such sink or step.
            JobFailedError: the job failed.
        """
        sample = Sample(rows, parse_duration_ms(within))
        sinks = {sink.table.name for sink in self._compiled.plan.sinks}
        chosen: dict[str, Any] = {} if name is None else {"sinks": (name,)} if name in sinks else {"step": name}
        plan = preview_plan(self.path, self._variables, self._overrides, sample=sample, **chosen)
        results, _ = sampled_results(plan, sample)
        return results if name is None else results[name]

    def explain(self, stage: str = "plan") -> str:
        """What it becomes at a stage: `plan`, `transformations`, `stream`, `job` or `execution`."""
        return self._compiled.render(stage, "text")

    def __repr__(self) -> str:
        return self.explain("job")

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """The job graph: drawn by notebooks that know Mermaid, a text elsewhere."""
        return {"text/vnd.mermaid": self._compiled.render("job", "mermaid"), "text/plain": repr(self)}


def pipeline(
    path: str | Path, *, variables: Mapping[str, object] | None = None, settings: Mapping[str, object] | None = None
) -> Pipeline:
    """A pipeline file: `flowrun.pipeline("orders.yaml").run()`.

    Args:
        path: a `.yaml` or `.sql` file.
        variables: values for `${NAME}`.
        settings: by name, such as `{"parallelism": 4}`.

    Raises:
        PipelineError: it has errors, all of which are said.
    """
    streaming = {"settings.mode": "streaming", **_overrides(settings)}
    return Pipeline(Path(path), _texts(variables), streaming)


def _overrides(settings: Mapping[str, object] | None) -> dict[str, str]:
    return {f"settings.{name}": str(value) for name, value in (settings or {}).items()}


def _texts(variables: Mapping[str, object] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (variables or {}).items()}


def _limit(within: str | None) -> int | None:
    try:
        return None if within is None else parse_duration_ms(str(within))
    except ValueError as error:
        raise PipelineError.of(f"'{within}' is no duration: {error}", "write 10s, 2m, 1h") from None


def _captured(sink: Sink) -> Sink:
    """The sink; one that would print hands its rows over."""
    if sink.table.connector != "print":
        return sink
    return replace(sink, table=replace(sink.table, options={"live": "true"}))


def _job_graph(plan: Plan) -> JobGraph:
    return build_job_graph(build_stream_graph(plan.name, lower(plan), graph_settings(plan.settings)))


def _run(
    job_graph: JobGraph, results: Mapping[str, Result], limit_ms: int | None, live: LiveTables | None
) -> JobResult:
    """Run a job to its end, while its rows go to the results; an interruption, or the end of the time, lets event time end."""
    clock = SystemClock()
    deadline = None if limit_ms is None else clock.monotonic_ns() + limit_ms * 1_000_000
    with ExitStack() as stack:
        for result in results.values():
            stack.enter_context(listening(result.name, result))
        job = stack.enter_context(start_embedded(job_graph))
        stopped = False
        while True:
            try:
                ended = job.wait(_LOOK_MS)
                if ended is not None:
                    return ended
                if live is not None:
                    live.show(results.values())
                over = deadline is not None and clock.monotonic_ns() >= deadline
            except KeyboardInterrupt:
                if stopped:
                    raise
                over = True
            if over and not stopped:
                stopped = True
                job.stop(drain=True)


def _run_as_batch(compiled: CompiledPipeline, results: Mapping[str, Result], limit_ms: int | None) -> None:
    """Run a statement on Spark to its end, which gives its rows there."""
    from flowrun.runners.spark import SparkOptions, run_batch, run_interruptibly

    if limit_ms is not None:
        raise PipelineError.of(
            "`within` ends a stream, and a batch ends by itself",
            "leave it out, or SET 'execution.runtime-mode' = 'streaming'",
        )
    with ExitStack() as stack:
        for result in results.values():
            stack.enter_context(listening(result.name, result))
        run_interruptibly(lambda: run_batch(compiled, SparkOptions()))


def _live_tables(wanted: bool | None) -> LiveTables | None:
    """What shows rows while they come: in a notebook, in the output of its cell."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    in_notebook = shell is not None and hasattr(shell, "kernel")
    if shell is None or not (in_notebook if wanted is None else wanted):
        return None
    display: Any = import_module("IPython.display").display
    return LiveTables(display)
