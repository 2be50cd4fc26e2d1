"""`flowrun resume --from-savepoint PATH [FILE]`: go on from a savepoint or checkpoint."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click

from flowrun.cli.arguments import (
    ALLOW_NON_RESTORED,
    COMMITTED_AFTER,
    FROM_SAVEPOINT,
    FUNCTIONS_FROM,
    WORKERS,
    ViewOptions,
    all_overrides,
    compile_options,
    parse_assignments,
    view_options,
)
from flowrun.cli.cluster_arguments import DETACH, ClusterOptions, cluster_of_job, job_cluster_options
from flowrun.cli.rest_arguments import rest_options
from flowrun.cli.spark_arguments import SparkArguments, spark_arguments
from flowrun.cli.stream_on_spark import OnSpark, on_spark_options, refuse_on_spark, refuse_spark, run_job_on_spark
from flowrun.cli.user_code import may_run_user_code, spare_pandas


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@compile_options
@FROM_SAVEPOINT
@FUNCTIONS_FROM
@ALLOW_NON_RESTORED
@COMMITTED_AFTER
@WORKERS
@spark_arguments
@on_spark_options
@job_cluster_options
@DETACH
@view_options
@rest_options
@click.pass_context
def resume(
    ctx: click.Context,
    file: Path | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    from_savepoint: str,
    functions_from: Path | None,
    allow_non_restored_state: bool,
    committed_after: str,
    workers: int | None,
    cluster: ClusterOptions | None,
    detach: bool,
    view: ViewOptions,
    spark: SparkArguments,
    on_spark: OnSpark | None,
) -> None:
    """Go on from a savepoint or checkpoint.

    Without FILE the pipeline is the one that was running: its text, --var and --set values are kept with the state, relative paths start in
    the folder in which it was started, and what is given here is added; its Python functions are imported from --functions-from, or from
    the working directory if the pipeline was there. With FILE, FILE and what is given here count alone.
    """
    spare_pandas(ctx, wanted=file is None or may_run_user_code(file, (*variables, *overrides)))
    from flowrun.cli.job import JobRun, prepare, run_job
    from flowrun.cli.program import ProgramRun, run_jobs
    from flowrun.cli.restoring import kept_program, pipeline_and_state
    from flowrun.runners.compile import PROGRAM_SUFFIX
    from flowrun.runners.recompiling import recompiling
    from flowrun.state.storage.leases import holding_leases

    if view.report is not None:
        view = replace(view, report=view.report.absolute())  # the working directory may change below
    prepare(view)
    cluster = cluster_of_job(cluster, detach, workers, elsewhere=on_spark is not None)
    if on_spark is None:
        refuse_spark(spark)
    else:
        refuse_on_spark(("--workers", workers is not None), ("--cluster", cluster))
    leases = ctx.with_resource(ExitStack())
    leases.enter_context(holding_leases())
    given = parse_assignments(variables, "--var")
    values = all_overrides(overrides, parallelism)
    if file is None and (found := kept_program(from_savepoint, functions_from, given)) is not None:
        file, kept = found
        given, values = {**kept.variables, **given}, {**kept.overrides, **values}
    if on_spark is None and file is not None and file.suffix.lower() == PROGRAM_SUFFIX:
        program = ProgramRun(
            file,
            given,
            values,
            view,
            from_savepoint,
            allow_non_restored_state,
            committed_after,
            workers,
            cluster,
            detach,
        )
        ctx.exit(run_jobs(program, show_traceback=ctx.obj["traceback"]))
    functions_folder = None if functions_from is None else functions_from.absolute()  # as above
    compiled, restored = pipeline_and_state(
        file, from_savepoint, given, values, functions_from=functions_from, runs=True, quiet=view.quiet
    )
    kept_functions = None if file is not None else functions_folder or Path(compiled.text.directory)
    run = JobRun(
        compiled, view, restored, allow_non_restored_state, committed_after=committed_after, release=leases.close,
        workers=workers, recompiling=recompiling(compiled, given, values, kept_functions),
    )  # fmt: skip
    if on_spark is not None:
        options = on_spark.options(spark.options(view.log.level))
        ctx.exit(run_job_on_spark(run, given, values, options, show_traceback=ctx.obj["traceback"]))
    if cluster is not None:
        from flowrun.cli.cluster_job import run_on_cluster

        ctx.exit(run_on_cluster(run, given, values, cluster, detach=detach, show_traceback=ctx.obj["traceback"]).code)
    ctx.exit(run_job(run, show_traceback=ctx.obj["traceback"]).code)
