"""`flowrun run FILE --on spark`: a pipeline without end whose subtasks run in Spark's executors."""

from __future__ import annotations

import functools
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from flowrun.cli.arguments import ViewOptions
from flowrun.cli.cluster_arguments import AddressType, is_given
from flowrun.core.record import record

if TYPE_CHECKING:
    from flowrun.cli.job import JobRun
    from flowrun.cli.spark_arguments import SparkArguments
    from flowrun.runners.spark_stream import Coming, StreamOptions
    from flowrun.runtime.cluster.worker_cluster import WorkerCluster
    from flowrun.runtime.rpc.address import Address, TcpAddress
    from flowrun.spark.session import SparkOptions

F = TypeVar("F", bound=Callable[..., Any])

_MOST_TASK_EXECUTORS = 10_000
_FIRST_LINE_S, _NEXT_LINE_S = 5.0, 15.0
"""After which it is said that task executors are waited for, and how often from then on."""


@record
class OnSpark:
    """The options of `--on spark`.

    Attributes:
        task_executors: how many there are; None: as many as the job has slots and Spark has cores.
        listen: where they reach this process; None: an address that fits where Spark runs.
        patience_s: how long they may take to come.
        tls: folder of certificates, under the same path on all machines; None: connections are not encrypted.
    """

    task_executors: int | None
    listen: TcpAddress | None
    patience_s: float
    tls: Path | None = None

    def options(self, spark: SparkOptions) -> StreamOptions:
        """With where and how Spark runs."""
        from flowrun.runners.spark_stream import StreamOptions

        return StreamOptions(spark, self.task_executors, self.listen, self.patience_s, self.tls)


def on_spark_options(command: F) -> F:
    """Add --on, --task-executors, --listen and --patience, to a command that has --tls; it gets them as one argument `on_spark`: an
    `OnSpark`, or None.
    """

    @functools.wraps(command)
    def with_options(
        *args: Any,
        on: str | None,
        task_executors: int | None,
        listen: Address | None,
        patience: str | None,
        **rest: Any,
    ) -> Any:
        return command(*args, on_spark=_on_spark(on, task_executors, listen, patience), **rest)

    decorated: Any = with_options
    for decorate in (
        click.option("--patience", metavar="DURATION", help="How long Spark may take to start them; 2m unless given."),
        click.option(
            "--listen", type=AddressType(), metavar="HOST:PORT",
            help="Where task executors reach this process; by default at the driver's host.",
        ),
        click.option(
            "--task-executors", type=click.IntRange(1, _MOST_TASK_EXECUTORS), metavar="N",
            help="Processes in Spark's executors that subtasks run in, each a task of Spark; by default one a slot.",
        ),
        click.option("--on", type=click.Choice(["spark"]), help="Run a stream in Spark's executors."),
    ):  # fmt: skip
        decorated = decorate(decorated)
    return cast("F", decorated)


def _on_spark(
    on: str | None, task_executors: int | None, listen: Address | None, patience: str | None
) -> OnSpark | None:
    from flowrun.core.units import parse_duration_ms
    from flowrun.runtime.rpc.address import TcpAddress

    if on is None:
        if task_executors is not None or listen is not None or patience is not None:
            raise click.UsageError("--task-executors, --listen and --patience go with --on spark")
        return None
    if listen is not None and not isinstance(listen, TcpAddress):
        raise click.BadParameter("executors need HOST:PORT", param_hint="--listen")
    try:
        patience_ms = parse_duration_ms(patience or "2m")
    except ValueError as error:
        raise click.BadParameter(f"'{patience}' is no duration: {error}", param_hint="--patience") from None
    tls: Path | None = click.get_current_context().params["tls"] if is_given("tls") else None
    return OnSpark(task_executors, listen, patience_ms / 1000, None if tls is None else tls.expanduser().absolute())


def refuse_spark(spark: SparkArguments) -> None:
    """Raise UsageError for options of Spark that a stream of this process cannot have."""
    if spark.are_given:
        raise click.UsageError("--spark-master, --spark-remote and --conf go with --mode batch or --on spark")


def refuse_on_spark(*given: tuple[str, object]) -> None:
    """Raise UsageError for an option that a stream on Spark cannot have."""
    for option, value in given:
        if value:
            raise click.UsageError(f"{option} does not go with --on spark, which runs streams in Spark's executors")


@record
class SparkRun:
    """A stream that is to run on Spark.

    Attributes:
        file: of the pipeline or program.
        variables: the values of `--var`.
        overrides: values by path that replace those in the file.
        view: what is shown.
        spark: where and how Spark runs.
        on_spark: how many task executors there are, and how they reach this process.
        from_savepoint: the path that the job restores from; None: it starts without state.
        allow_non_restored: whether state of operators that the pipeline no longer has is dropped.
        committed_after: the value of an `AfterRestore`.
    """

    file: Path
    variables: Mapping[str, str]
    overrides: Mapping[str, str]
    view: ViewOptions
    spark: SparkOptions
    on_spark: OnSpark
    from_savepoint: str | None
    allow_non_restored: bool
    committed_after: str


def run_on_spark(run: SparkRun, *, show_traceback: bool) -> int:
    """Run a stream, or the first job of a program, to its end or until it is stopped; gives the exit code."""
    from flowrun.cli.job import JobRun
    from flowrun.runners.compile import CompiledPipeline, compile_file

    compiled = compile_file(run.file, run.variables, run.overrides)
    with ExitStack() as leases:
        restored = None
        if run.from_savepoint is not None:
            from flowrun.cli.restoring import in_order_of, locate_state
            from flowrun.state.storage.leases import holding_leases

            leases.enter_context(holding_leases())
            restored = locate_state(run.from_savepoint, compiled.job_graph.name)
            if isinstance(compiled, CompiledPipeline):
                compiled = in_order_of(compiled, restored, run.file, run.variables, run.overrides)
        job = JobRun(
            compiled, run.view, restored, run.allow_non_restored,
            committed_after=run.committed_after, release=leases.close,
        )  # fmt: skip
        options = run.on_spark.options(run.spark)
        return run_job_on_spark(job, run.variables, run.overrides, options, show_traceback=show_traceback)


def run_job_on_spark(
    run: JobRun,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    options: StreamOptions,
    *,
    show_traceback: bool,
) -> int:
    """Run a compiled stream on Spark to its end or until it is stopped; gives the exit code.

    Args:
        run: the stream, and what it restores from.
        variables: with which it was compiled.
        overrides: with which it was compiled.
        options: where it runs.
        show_traceback: of failures.

    Raises:
        click.UsageError: it is no stream.
        PipelineError: it has to run in this process, or its modules cannot travel.
    """
    from flowrun.cli.job import run_job
    from flowrun.core.optional_pandas import allow_pandas
    from flowrun.runners.job_text import sent_job
    from flowrun.runners.recompiling import recompiling
    from flowrun.runners.spark_stream import cluster_on_spark
    from flowrun.runners.workers import check_runs_elsewhere

    compiled, waiting = run.compiled, _Waiting(quiet=run.view.quiet)
    if compiled.is_batch:
        raise click.UsageError("--on spark is for streams: a pipeline in batch mode runs on Spark without it")
    check_runs_elsewhere(compiled.job_graph, "--on spark was asked for", "leave --on spark out")
    allow_pandas()  # Spark wants it
    sent = sent_job(compiled.text, variables, overrides, run.functions_from)

    @contextmanager
    def cluster() -> Iterator[WorkerCluster]:
        with ExitStack() as of_cluster:
            with _ended_by_sigterm():
                started = of_cluster.enter_context(cluster_on_spark(compiled.job_graph, sent, options, waiting.look))
            yield started

    again = recompiling(compiled, variables, overrides, run.functions_from, sent.text)
    return run_job(
        replace(run, cluster=cluster, recompiling=again, place=_place(options.spark)), show_traceback=show_traceback
    ).code


class _Waiting:
    """Says now and then that task executors are waited for."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._next_s = _FIRST_LINE_S

    def look(self, coming: Coming) -> None:
        """Task executors are waited for."""
        if self._quiet or coming.waited_s < self._next_s:
            return
        from flowrun.cli.console import say

        self._next_s = coming.waited_s + _NEXT_LINE_S
        say(f"waiting for Spark: {coming.there} of {coming.numbers.workers} task executors are there")


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """A context in which SIGTERM is answered as Ctrl-C is, with everything cleaned up."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _place(spark: SparkOptions) -> str:
    """The options that name this Spark, but for settings and parameters of the URL, which may hold secrets."""
    master = "" if spark.master is None else f" --spark-master {shlex.quote(spark.master)}"
    if spark.remote is None:
        return f"--on spark{master}"
    server, semicolon, _ = spark.remote.partition(";")
    return f"--on spark --spark-remote {shlex.quote(server)}" + (";…" if semicolon else "")
