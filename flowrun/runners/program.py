"""Programs in Python as pipelines: `flowrun run job.py`.

A program builds streams and ends with `env.execute()`. It is run as `python job.py` would run it; its jobs go to an executor, which may
run them, or stop the program there because it only wants to see the job.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import NoReturn, TypeVar

from flowrun.core.record import record
from flowrun.core.recovery import CheckpointSettings
from flowrun.core.resources import SlotSettings
from flowrun.datastream.environment import StreamExecutionEnvironment
from flowrun.datastream.execution import JobClient, PipelineExecutor, executing
from flowrun.errors import Diagnostic, FlowrunError, PipelineError
from flowrun.frontend.pipeline import project_of
from flowrun.frontend.project_file import ENVIRONMENT
from flowrun.frontend.settings.reading import overridden_settings
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.stream_graph import GraphSettings, StreamGraph
from flowrun.graph.transformation import SinkTransformation, SourceTransformation, Transformation
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.operators.function_loading import describe
from flowrun.plan.guarantees import Endpoint, SinkGuarantee, sink_guarantee
from flowrun.plan.tables import ProgramTable
from flowrun.runners.graph_texts import render_graphs
from flowrun.runners.pipeline_text import program_text_to_keep
from flowrun.runners.program_variables import program_variables, shared_of_program
from flowrun.runtime.job_status import JobResult
from flowrun.state.checkpoints import PipelineText, ProjectText


@record
class CompiledProgram:
    """A job of a program: it has what a compiled pipeline has, but for a plan.

    Attributes:
        transformations: the sinks; everything else is reached from them.
        text: what checkpoints keep of the program.
        reads: the tables of its sources.
        writes: the tables of its sinks.
    """

    name: str
    transformations: tuple[SinkTransformation, ...]
    stream_graph: StreamGraph
    job_graph: JobGraph
    text: PipelineText
    warnings: tuple[Diagnostic, ...] = ()
    reads: tuple[ProgramTable, ...] = ()
    writes: tuple[ProgramTable, ...] = ()

    @property
    def is_batch(self) -> bool:
        """Spark runs no programs."""
        return False

    @property
    def guarantees(self) -> tuple[SinkGuarantee, ...]:
        """What holds for each sink after a failure."""
        settings = self.job_graph.settings
        return tuple(
            sink_guarantee(
                Endpoint(sink.name, type(sink.sink).__name__, sink.sink.delivery),
                [Endpoint(s.name, type(s.source).__name__, s.source.delivery) for s in _sources(sink)],
                settings.checkpoint,
                settings.restart,
                unbounded=settings.unbounded,
            )
            for sink in self.transformations
        )

    def render(self, stage: str, output: str, workers: int | None = None) -> str:
        """One stage (`transformations`, `stream`, `job` or `execution`) as `text`, `json` or `mermaid`.

        The execution graph is shown as it runs in so many processes (`workers`; 0: this one, None: as many as is faster).

        Raises:
            PipelineError: the stage is `plan`, which programs do not have.
        """
        if stage == "plan":
            raise PipelineError.of(
                f"{self.text.file_name}: a program has no plan", "--stage transformations shows what it builds"
            )
        return render_graphs(self.name, self.transformations, self.stream_graph, self.job_graph, stage, output, workers)


def run_program(path: Path, executor: PipelineExecutor, modules: Path | None = None) -> None:
    """Run a program; its jobs go to the executor.

    Args:
        path: the program's file; it stands in messages and in code that goes to tasks.
        executor: of its jobs.
        modules: where a copy of the program, and of the modules beside it, is to be taken from instead.

    Raises:
        PipelineError: the program cannot be read, or fails before it has run a job.
        FlowrunError: what the executor raises; or the program fails afterwards.
    """
    file = path if modules is None else modules / path.name
    if not file.is_file():
        raise PipelineError.of(f"cannot read '{file}': there is no such file")
    counting = _Counting(executor)
    folder = str(file.parent.absolute())
    arguments, sys.argv = sys.argv, [str(path)]
    sys.path.insert(0, folder)
    try:
        with executing(counting):
            if modules is None:
                runpy.run_path(str(path), run_name="__main__")
            else:
                _run_copy(file.read_bytes(), str(path))
    except FlowrunError:
        raise
    except Exception as error:
        _report(path, error, has_run=bool(counting.jobs))
    finally:
        sys.argv = arguments
        sys.path.remove(folder)


def _run_copy(source: bytes, name: str) -> None:
    """Run a program whose file is elsewhere, so that its code is the same as if it were read from the file `name`."""
    main = ModuleType("__main__")
    main.__file__, main.__package__ = name, ""  # as `runpy` does; code that goes by value has them with it
    before, sys.modules["__main__"] = sys.modules["__main__"], main
    try:
        exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)
    finally:
        sys.modules["__main__"] = before


def compile_program(path: Path, variables: Mapping[str, str], overrides: Mapping[str, str]) -> CompiledProgram:
    """The first job of a program, which is stopped where it would run it. What it prints goes to standard error.

    Raises:
        PipelineError: the program fails, ends itself, has no job, or its job or settings are wrong.
    """
    try:
        with redirect_stdout(sys.stderr):
            run_program(path, _Stopping(path, variables, overrides))
    except _Stopped as stopped:
        return stopped.compiled
    except SystemExit as end:
        said = "" if end.code is None else f": {end.code}" if isinstance(end.code, str) else f" with code {end.code}"
        raise PipelineError.of(
            f"{path}: the program ended itself before it ran a job{said}",
            "let it come to env.execute() without arguments; --var NAME=VALUE gives it values, in env.variables",
        ) from end
    raise no_job(path)


def compile_sent_program(text: PipelineText, variables: Mapping[str, str], modules: Path) -> CompiledProgram:
    """The first job of a program that another process has compiled, the same as there.

    Args:
        text: what is kept of the program.
        variables: that it is given, with those that are withheld.
        modules: where the program and the modules beside it are in this process.

    Raises:
        PipelineError: as `compile_program`.
    """
    path = Path(text.file_name)
    try:
        run_program(path, _Stopping(path, variables, text.overrides, text), modules)
    except _Stopped as stopped:
        return stopped.compiled
    raise no_job(path)


def no_job(path: Path) -> PipelineError:
    """The error of a program that ended without a job."""
    return PipelineError.of(f"{path}: the program ended without running a job", "end it with env.execute()")


def compile_environment(
    environment: StreamExecutionEnvironment,
    path: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    text: PipelineText | None = None,
    project: ProjectText | None = None,
) -> CompiledProgram:
    """The job that an environment of a program has now, with what the command line says in place of the program's settings.

    Args:
        environment: of the program.
        path: the program's file.
        variables: that it was given.
        overrides: of its settings, and the environment of its project.
        text: what is kept of the program; None: it is read from the file.
        project: what its project adds, if there is no `text`; None: it is in none.

    Raises:
        PipelineError: the job is wrong, or one of the settings.
    """
    own = {key: value for key, value in overrides.items() if key != ENVIRONMENT}
    environment.settings = _overridden(environment.settings, own)
    for source in (source for sink in environment.sinks for source in _sources(sink)):
        if isinstance(source.factory, SourceOperatorFactory):  # it was made with the program's own settings
            source.factory = replace(source.factory, batch_rows=environment.settings.job.batch_rows)
    graph, job_graph = environment.graphs()
    if overrides.get("settings.parallelism") == "auto":  # other machines, and later runs, have other cores
        overrides = {**overrides, "settings.parallelism": str(graph.settings.parallelism)}
    text = text or program_text_to_keep(path, variables, overrides, project)
    sources = {id(source): source for sink in environment.sinks for source in _sources(sink)}
    reads = tuple(environment.table_of(source) for source in sources.values())
    writes = tuple(environment.table_of(sink) for sink in environment.sinks)
    return CompiledProgram(environment.name, environment.sinks, graph, job_graph, text, reads=reads, writes=writes)


def _overridden(settings: GraphSettings, overrides: Mapping[str, str]) -> GraphSettings:
    checkpoint = settings.job.checkpoint
    given = dict(overrides)
    names = {path.split(".")[1] for path in overrides if path.startswith("settings.")}
    if "checkpoint" in names and checkpoint is not None:
        given.setdefault("settings.checkpoint.interval", f"{checkpoint.interval_ms}ms")
    read = overridden_settings(given)
    if "checkpoint" in names and read.checkpoint is not None:
        checkpoint = read.checkpoint if checkpoint is None else _changed(checkpoint, read.checkpoint)
    unknown = sorted(names - _SHAPING - _RUNNING - {"checkpoint", "restart", "slots", "telemetry"})
    if unknown:
        raise PipelineError.of(
            f"the setting '{unknown[0]}' says nothing to a program",
            "set it in the program, where it builds its streams",
        )
    job = replace(
        settings.job,
        checkpoint=checkpoint,
        restart=read.restart if "restart" in names else settings.job.restart,
        slots=_with_changes(settings.job.slots, read.slots, SlotSettings()),
        traces=read.traces if "telemetry" in names else settings.job.traces,
        **{_FIELDS.get(n, n): getattr(read, _FIELDS.get(n, n)) for n in names & _RUNNING},
    )
    return replace(settings, job=job, **{n: getattr(read, n) for n in names & _SHAPING})


_SHAPING = frozenset({"parallelism", "max_parallelism", "chaining", "slot_sharing_groups"})
_RUNNING = frozenset(
    {"buffer_timeout", "object_reuse", "batch_rows", "latency_interval", "cancellation_timeout", "memory_watch"}
)
_FIELDS = {n: f"{n}_ms" for n in ("buffer_timeout", "latency_interval", "cancellation_timeout")}
"""Settings whose fields have other names."""


_Changed = TypeVar("_Changed", CheckpointSettings, SlotSettings)


def _changed(settings: CheckpointSettings, given: CheckpointSettings) -> CheckpointSettings:
    """The settings with all that is given."""
    changed = _with_changes(settings, given, CheckpointSettings(given.interval_ms))
    return replace(changed, interval_ms=given.interval_ms)


def _with_changes(settings: _Changed, given: _Changed, silent: _Changed) -> _Changed:
    """The settings with all that is given, which is what is not as if nothing were said."""
    names = [f.name for f in fields(given)]
    return replace(settings, **{n: getattr(given, n) for n in names if getattr(given, n) != getattr(silent, n)})


def _sources(sink: SinkTransformation) -> list[SourceTransformation]:
    found: dict[int, SourceTransformation] = {}
    seen: set[int] = set()
    stack: list[Transformation] = [sink]
    while stack:
        one = stack.pop()
        if id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, SourceTransformation):
                found[id(one)] = one
            stack.extend(one.inputs)
    return list(found.values())


def _report(path: Path, error: Exception, *, has_run: bool) -> NoReturn:
    """Raise what says where a program failed: before its first job its input is wrong, afterwards something has happened."""
    file = str(path)
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if os.path.abspath(f.filename) == os.path.abspath(file)
    ]
    line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
    place = file if line is None else f"{file}:{line}"
    message, hint = (
        f"{place}: the program failed: {describe(error)}",
        "`flowrun --traceback run …` shows how it got there",
    )
    if has_run:
        raise FlowrunError(message, hint=hint) from error
    raise PipelineError.of(message, hint) from error


class _Counting:
    """Knows how many jobs there were."""

    def __init__(self, executor: PipelineExecutor) -> None:
        self._executor = executor
        self.jobs = 0

    @property
    def variables(self) -> Mapping[str, str]:
        return self._executor.variables

    def execute(self, environment: StreamExecutionEnvironment) -> JobResult:
        self.jobs += 1
        return self._executor.execute(environment)

    def execute_async(self, environment: StreamExecutionEnvironment) -> JobClient:
        self.jobs += 1
        return self._executor.execute_async(environment)


class _Stopped(BaseException):
    """The program has come to its first job."""

    def __init__(self, compiled: CompiledProgram) -> None:
        self.compiled = compiled


class _Stopping:
    """Stops a program at its first job."""

    def __init__(
        self,
        path: Path,
        variables: Mapping[str, str],
        overrides: Mapping[str, str],
        text: PipelineText | None = None,
    ) -> None:
        self._path = path
        self._given = variables
        self._overrides = overrides
        self._text = text
        self._project = project_of(path) if text is None else text.project
        self._shared = shared_of_program(path, overrides, self._project)

    @property
    def variables(self) -> Mapping[str, str]:
        return program_variables(self._given, self._shared)

    def execute(self, environment: StreamExecutionEnvironment) -> JobResult:
        self._stop(environment)

    def execute_async(self, environment: StreamExecutionEnvironment) -> JobClient:
        self._stop(environment)

    def _stop(self, environment: StreamExecutionEnvironment) -> NoReturn:
        raise _Stopped(
            compile_environment(environment, self._path, self._given, self._overrides, self._text, self._project)
        )


JobRunner = Callable[[CompiledProgram], JobResult]


class RunningExecutor:
    """Runs the jobs of a program with what the command line says.

    Args:
        path: the program's file.
        variables: of the command line.
        overrides: of the command line.
        run: runs one job to its end; it may raise to end the program there.

    Raises:
        PipelineError: its project has errors, or not the environment that the command line names.
    """

    def __init__(
        self,
        path: Path,
        variables: Mapping[str, str],
        overrides: Mapping[str, str],
        run: JobRunner,
    ) -> None:
        self._path = path
        self._given = variables
        self._overrides = overrides
        self._run = run
        self._project = project_of(path)
        self._shared = shared_of_program(path, overrides, self._project)

    @property
    def variables(self) -> Mapping[str, str]:
        """What the command line says, what the project does, and environment variables of the process."""
        return program_variables(self._given, self._shared)

    def execute(self, environment: StreamExecutionEnvironment) -> JobResult:
        """Run the job."""
        return self._run(
            compile_environment(environment, self._path, self._given, self._overrides, project=self._project)
        )

    def execute_async(self, environment: StreamExecutionEnvironment) -> JobClient:
        """Refused: the command watches the one job that it runs.

        Raises:
            PipelineError: always.
        """
        raise PipelineError.of(
            f"{self._path}: the command runs a program's jobs one after the other, to their ends",
            "call env.execute(), or start the program with python",
        )
