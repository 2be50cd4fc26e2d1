"""Arguments that several commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from flowrun.cli.logs import LogOptions, log_options
from flowrun.core.cores import usable_cores
from flowrun.core.record import record
from flowrun.frontend.project_file import ENVIRONMENT
from flowrun.masking import learn_secret

if TYPE_CHECKING:
    from flowrun.rest.doors import DoorOptions

F = TypeVar("F", bound=Callable[..., Any])


def parse_assignments(given: Iterable[str], option: str) -> dict[str, str]:
    """Texts of the form `K=V` as a mapping; of several with the same key the last one counts.

    Raises:
        click.BadParameter: a text has no `=` or no key.

    >>> parse_assignments(["DIR=/data", "N=3"], "--var")
    {'DIR': '/data', 'N': '3'}
    """
    pairs: dict[str, str] = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"'{text}' is not of the form NAME=VALUE", param_hint=option)
        pairs[key] = value
    return pairs


class _ParallelismType(click.ParamType[int]):
    """A number of at least 1, or `auto` for the number of processor cores."""

    name = "parallelism"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number.

        Raises:
            click.BadParameter: it is none.
        """
        if value == "auto":
            return usable_cores()
        return int(click.IntRange(1).convert(value, param, ctx))


class DurationType(click.ParamType[int]):
    """A duration, such as `90s`; gives ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The ms.

        Raises:
            click.BadParameter: it is none.
        """
        from flowrun.core.units import parse_duration_ms

        try:
            return value if isinstance(value, int) else parse_duration_ms(str(value))
        except ValueError as error:
            self.fail(f"'{value}' is no duration: {error}", param, ctx)


ENVIRONMENT_OPTION = click.option(
    "--env", "environment", metavar="NAME", help="The environment of the project, as its flowrun.yaml declares it."
)


def in_environment(name: str | None) -> tuple[str, ...]:
    """The environment that was given as one more value of `--set`; nothing if none was."""
    return () if name is None else (f"{ENVIRONMENT}={name}",)


STOP_SAVEPOINT = click.option(
    "--stop-savepoint",
    metavar="DIR",
    callback=lambda _ctx, _param, value: _absolute(value),
    help="A signal ends what runs with a savepoint below DIR, not with a checkpoint.",
)


def _absolute(location: str | None) -> str | None:
    """A folder, from wherever the process may go; the URI of an object store as it is."""
    return location if location is None or "://" in location else os.path.abspath(os.path.expanduser(location))


def compile_options(command: F) -> F:
    """Add --env, --var, --secret-var, --set and --parallelism: the options of every command that compiles a pipeline."""

    @functools.wraps(command)
    def with_secrets(
        *args: Any,
        variables: tuple[str, ...],
        secret_variables: tuple[str, ...],
        overrides: tuple[str, ...],
        environment: str | None,
        **rest: Any,
    ) -> Any:
        variables = (*variables, *map(secret_assignment, secret_variables))
        return command(*args, variables=variables, overrides=(*overrides, *in_environment(environment)), **rest)

    decorated: Any = with_secrets
    for decorate in (
        ENVIRONMENT_OPTION,
        click.option(
            "-p",
            "--parallelism",
            type=_ParallelismType(),
            metavar="N|auto",
            help="Parallelism of steps that do not set their own; auto: as many as there are processor cores.",
        ),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="PATH=VALUE",
            help="Override a value, e.g. settings.batch_rows=1024.",
        ),
        click.option("--var", "variables", multiple=True, metavar="K=V", help="Fill ${K} in the file."),
        click.option(
            "--secret-var",
            "secret_variables",
            multiple=True,
            metavar="K[=V]",
            help="As --var, but never shown nor kept with the state; without V the environment variable K.",
        ),
    ):
        decorated = decorate(decorated)
    return cast(F, decorated)


def secret_assignment(text: str) -> str:
    """The assignment `K=V` of a secret variable, whose value is masked from now on.

    Raises:
        click.BadParameter: the text has no name, or it has no value and there is no such environment variable.
    """
    name, separator, value = text.partition("=")
    if not separator:
        value = os.environ.get(name, "")
    if not name or not value:
        raise click.BadParameter(
            f"'{name}' has no value: write NAME=VALUE, or set the environment variable NAME", param_hint="--secret-var"
        )
    learn_secret(value)
    return f"{name}={value}"


def duration_ms(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A duration such as 30s or 5m, as ms: the callback of an option."""
    from flowrun.core.units import parse_duration_ms

    if value is None:
        return None
    try:
        return parse_duration_ms(value)
    except ValueError as error:
        raise click.BadParameter(f"'{value}' is no duration: {error}", ctx, param) from None


def pipeline_arguments(command: F) -> F:
    """Add the argument FILE and the options of `compile_options`."""
    return click.argument("file", type=click.Path(path_type=Path))(compile_options(command))


def view_options(command: F) -> F:
    """Add the options that say what a run shows of itself, and how a signal ends it; the command gets them as one argument `view` (a
    `ViewOptions`).
    """

    @functools.wraps(command)
    def with_view(
        *args: Any,
        quiet: bool,
        log: LogOptions,
        live: bool | None,
        report: Path | None,
        stop_savepoint: str | None,
        stop_within: int | None,
        **rest: Any,
    ) -> Any:
        view = ViewOptions(quiet, log, live, report, stop=StopOptions(stop_savepoint, stop_within))
        return command(*args, view=view, **rest)

    decorated: Any = log_options()(with_view)
    for decorate in (
        click.option(
            "--stop-within",
            type=DurationType(),
            metavar="DURATION",
            help="After a signal: cancel if the last checkpoint or savepoint is not there by then; the one before counts.",
        ),
        STOP_SAVEPOINT,
        click.option(
            "--report",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Write the final figures to a JSON file.",
        ),
        click.option("--live/--no-live", default=None, help="Live view or plain lines; by default live on a terminal."),
        click.option("-q", "--quiet", is_flag=True, help="Only errors, and what the pipeline itself prints."),
    ):
        decorated = decorate(decorated)
    return cast("F", decorated)


class _WorkersType(click.ParamType[int | None]):
    """`auto`, or a number of processes; None stands for `auto`."""

    name = "workers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """The number.

        Raises:
            click.BadParameter: it is none.
        """
        if value is None or isinstance(value, int) or value == "auto":
            return None if value == "auto" else value
        if not str(value).isascii() or not str(value).isdigit() or int(value) > MOST_WORKERS:
            self.fail(f"'{value}' is neither 'auto' nor a number from 0 to {MOST_WORKERS}", param, ctx)
        return int(value)


MOST_WORKERS = 1024

WORKERS = click.option(
    "--workers",
    type=_WorkersType(),
    default="auto",
    metavar="auto|0|N",
    help="Processes that subtasks run in; 0: this one. By default as many as parallelism and cores allow, where that is faster.",
)


@record
class StopOptions:
    """How a signal ends a run.

    Attributes:
        savepoint: the folder below which the run ends with a savepoint; None: with a checkpoint, if it takes some.
        within_ms: the run is cancelled if that is not there by then; None: it is waited for.
    """

    savepoint: str | None = None
    within_ms: int | None = None


NO_STOP_OPTIONS = StopOptions()


@record
class ViewOptions:
    """What a run shows of itself.

    Attributes:
        quiet: whether only errors are shown.
        log: how it logs.
        live: whether there is a live view instead of plain lines; None: there is one on a terminal.
        report: the file that the final figures are written to; None: there is none.
        rest: where its page and REST API listen besides; None: nowhere.
        stop: how a signal ends it.
    """

    quiet: bool
    log: LogOptions
    live: bool | None
    report: Path | None
    rest: DoorOptions | None = None
    stop: StopOptions = NO_STOP_OPTIONS


FROM_SAVEPOINT = click.option(
    "--from-savepoint",
    metavar="PATH",
    required=True,
    help="A savepoint, one checkpoint, or a folder of checkpoints, whose newest counts.",
)

FUNCTIONS_FROM = click.option(
    "--functions-from",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Without FILE: the folder to import the pipeline's Python functions from. Else none are imported.",
)

ALLOW_NON_RESTORED = click.option(
    "--allow-non-restored-state", is_flag=True, help="Drop the state of operators that the pipeline no longer has."
)

COMMITTED_AFTER = click.option(
    "--committed-after",
    type=click.Choice(["refuse", "remove", "remove-existing", "keep"]),
    default="refuse",
    show_default=True,
    help="Rows that sinks committed after the savepoint or checkpoint: do not start; delete them first, so that each is there once; delete "
    "those that are still in place; or keep them, so that they are there twice.",
)


def all_overrides(overrides: Iterable[str], parallelism: int | None) -> dict[str, str]:
    """The values of `--set` by their paths, and that of `--parallelism` as one more."""
    values = parse_assignments(overrides, "--set")
    if parallelism is not None:
        values["settings.parallelism"] = str(parallelism)
    return values
