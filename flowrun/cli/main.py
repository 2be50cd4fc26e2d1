"""The `flowrun` command: dispatches to subcommands, which are imported only when they are used.

Exit codes: 0 done, 1 the job failed, 2 the input is wrong (nothing was run or written), 130 interrupted.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
import threading
from typing import NoReturn

import click

from flowrun import __version__
from flowrun.cli.guarded_streams import guarded_streams, open_closed_streams
from flowrun.runtime.process import ALLOCATIONS_BETWEEN_COLLECTIONS, prepare_environment

# name → (module, attribute, one-line help); kept here so that `flowrun --help` imports nothing else
COMMANDS = {
    "run": ("flowrun.cli.run", "run", "Run a pipeline to its end, or until it is stopped."),
    "resume": ("flowrun.cli.resume", "resume", "Go on from a savepoint or checkpoint."),
    "backfill": ("flowrun.cli.backfill", "backfill", "Recompute a range of event time on Spark."),
    "test": ("flowrun.cli.test", "test", "Run the tests of pipelines: files NAME.test.yaml."),
    "verify": ("flowrun.cli.verify", "verify", "Compare what the stream and Spark give."),
    "jobmanager": (
        "flowrun.cli.jobmanager",
        "jobmanager",
        "Run a pipeline, or take jobs, on task managers that join over the network.",
    ),
    "taskmanager": ("flowrun.cli.taskmanager", "taskmanager", "Offer slots of this machine to a job manager."),
    "cluster": ("flowrun.cli.cluster_up", "cluster", "Run a cluster on this machine: cluster up."),
    "serve": ("flowrun.cli.serve", "serve", "Run all pipelines of a folder in one place."),
    "jobs": ("flowrun.cli.jobs", "jobs", "List your running jobs, or those of a cluster."),
    "ui": ("flowrun.cli.ui", "ui", "Print the address of the page of a running job, or of a cluster."),
    "why": ("flowrun.cli.why", "why", "Say why nothing comes out of a job, or why it is slow."),
    "top": ("flowrun.cli.top", "top", "Show how your running jobs, or those of a cluster, do, refreshed in place."),
    "savepoint": ("flowrun.cli.control", "savepoint", "Take a savepoint of a running job, which goes on."),
    "stop": ("flowrun.cli.control", "stop", "Stop a running job with a last checkpoint or savepoint."),
    "cancel": ("flowrun.cli.control", "cancel", "End a running job at once."),
    "rescale": ("flowrun.cli.control", "rescale", "Have a running job go on at another parallelism."),
    "apply": (
        "flowrun.cli.versions.apply",
        "apply",
        "Put a new version of a pipeline in the place of the one that runs.",
    ),
    "history": ("flowrun.cli.versions.history", "history", "List the versions of a pipeline that ran."),
    "diff": ("flowrun.cli.versions.diff", "diff", "Say what differs in meaning between two versions of a pipeline."),
    "plan": ("flowrun.cli.plan", "plan", "Show what a savepoint means for a changed pipeline."),
    "state": ("flowrun.cli.state.group", "state", "Look inside checkpoints and savepoints: list, show, diff, query."),
    "dead-letters": (
        "flowrun.cli.dead_letters",
        "dead_letters",
        "List, show and replay records that a pipeline could not read.",
    ),
    "validate": ("flowrun.cli.validate", "validate", "Check pipelines without running them; reports all problems."),
    "lint": ("flowrun.cli.lint", "lint", "Find what is right in pipelines, but seldom meant."),
    "sql": ("flowrun.cli.sql.command", "sql", "A shell for SQL."),
    "preview": ("flowrun.cli.preview", "preview", "Show what a pipeline makes of a sample of its real input."),
    "explain": ("flowrun.cli.explain", "explain", "Show what a pipeline becomes, from plan to execution graph."),
    "lineage": ("flowrun.cli.lineage", "lineage", "Show from which columns the columns of sinks come."),
    "graph": ("flowrun.cli.graph", "graph", "Show the pipelines of a project, and the tables between them."),
    "connectors": ("flowrun.cli.connectors", "connectors", "List connectors, or show the options of one."),
    "schema": ("flowrun.cli.schema", "schema", "Print the JSON Schema of pipeline files, for editors."),
    "dev": ("flowrun.cli.dev", "dev", "Preview and test a pipeline again whenever something changes."),
    "lsp": ("flowrun.cli.language_server", "language_server", "Speak with an editor (Language Server Protocol)."),
    "infer": ("flowrun.cli.infer", "infer", "Write a source for data that nobody has declared."),
    "init": ("flowrun.cli.init", "init", "Make a small project that runs."),
}

HIDDEN_COMMANDS = {"run-version": ("flowrun.cli.versions.version_process", "run_version")}
"""name → (module, attribute) of what flowrun starts itself."""

_WITHOUT_USER_CODE = frozenset(("savepoint", "stop", "cancel", "rescale", "jobs", "ui", "top", "state", "history"))
"""Commands that neither compile pipelines nor run them."""


class LazyGroup(click.Group):
    """A group whose commands are listed in `COMMANDS` and imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        module, attribute = HIDDEN_COMMANDS.get(cmd_name) or COMMANDS.get(cmd_name, ("", ""))[:2]
        if not module:
            return None
        if cmd_name in _WITHOUT_USER_CODE:
            from flowrun.cli.user_code import spare_pandas

            spare_pandas(ctx, wanted=False)
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest near matches for an unknown command."""
        if args and args[0] not in COMMANDS and args[0] not in HIDDEN_COMMANDS and not args[0].startswith("-"):
            from flowrun.errors import did_you_mean

            ctx.fail(f"no such command '{args[0]}'; {did_you_mean(args[0], COMMANDS) or 'see flowrun --help'}")
        return super().resolve_command(ctx, args)


def _show_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    from flowrun.connectors.formats.json_compiled import reader_text

    click.echo(f"flowrun, version {__version__}\nreader of JSON: {reader_text()}")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and which reader of JSON comes first, and exit.",
)
@click.option("--traceback", is_flag=True, help="Show Python tracebacks of failures.")
@click.pass_context
def cli(ctx: click.Context, traceback: bool) -> None:
    """Run declarative streaming pipelines with Flink's semantics.

    \b
      flowrun init my-project        make a project that runs
      flowrun run pipeline.yaml      run it
      flowrun run script.sql         run a Flink SQL script
      flowrun explain pipeline.yaml  see what it becomes
    """  # noqa: D301
    ctx.obj = {"traceback": traceback}


def main() -> None:
    """Entry point of the console script."""
    with guarded_streams():
        _main()


def _main() -> None:
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except Exception as error:
        # It is imported only now, so that a run without failures does not pay for it.
        from flowrun.cli.console import report_failure

        sys.exit(report_failure(error, show_traceback="--traceback" in sys.argv))
    sys.exit(code if isinstance(code, int) else 0)


def entry() -> NoReturn:
    """Run `main`, and then end the process at once; the `flowrun` script calls this.

    The interpreter would take another 0.15 s to tear down all modules, a fifth of a small run. Functions that are registered with `atexit`
    are called first. If a thread is left that is no daemon, the process ends in the usual way, which waits for it.
    """
    open_closed_streams()
    prepare_environment()
    gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS)
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    if not isinstance(code, int) or any(
        not t.daemon for t in threading.enumerate() if t is not threading.main_thread()
    ):
        sys.exit(code if isinstance(code, int | str) else 0)
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if not stream.closed:  # the language server closes its own
                stream.flush()
    except OSError:  # the reader has closed the pipe: it has read what it wanted
        code = code or 1
    os._exit(code)


if __name__ == "__main__":
    entry()
