"""Messages of the command line: errors and warnings are printed on standard error, all in one form."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable

import click

from flowrun.core.printable import printable
from flowrun.errors import (
    Diagnostic,
    FlowrunError,
    JobFailedError,
    OptionError,
    PipelineError,
    SetupError,
    Severity,
    UnsupportedPlanError,
)

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
_INPUT_ERRORS = (PipelineError, OptionError, UnsupportedPlanError, SetupError)


def say(text: str) -> None:
    """Print a line on standard error, so that progress and summaries never mix with a pipeline's own output."""
    click.echo(text, err=True)


def show_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Print problems with their places, errors in red and warnings in yellow."""
    for diagnostic in diagnostics:
        label = diagnostic.severity.value + ":"
        color = "red" if diagnostic.severity is Severity.ERROR else "yellow"
        say(printable(diagnostic.render()).replace(label, click.style(label, fg=color, bold=True), 1))


def show_outputs(outputs: Iterable[str]) -> None:
    """Print the answers of a script's statements on standard output."""
    for text in outputs:
        click.echo(printable(text) if sys.stdout.isatty() else text)


def report_failure(error: BaseException, *, show_traceback: bool) -> int:
    """Print one clear message for a failure; gives the exit code for it."""
    if show_traceback:
        traceback.print_exception(error, file=sys.stderr)
        _show_told_tracebacks(error)
    if _is_broken_pipe(error):  # whoever read our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    prefix = click.style("error:", fg="red", bold=True)
    if isinstance(error, PipelineError):
        show_diagnostics(error.diagnostics)
        return EXIT_BAD_INPUT
    if isinstance(error, JobFailedError):
        say(f"{prefix} {printable(str(error))}")
        for note in getattr(error, "__notes__", ()):
            say(f"  also: {printable(note)}")
        return EXIT_FAILED
    if isinstance(error, FlowrunError):
        say(f"{prefix} {printable(str(error))}")
        return EXIT_BAD_INPUT if isinstance(error, _INPUT_ERRORS) else EXIT_FAILED
    say(f"{prefix} flowrun itself failed: {type(error).__name__}: {printable(str(error))}")
    if not show_traceback:
        say("  hint: run again with `flowrun --traceback …` and report what it prints")
    return EXIT_FAILED


def _show_told_tracebacks(error: BaseException) -> None:
    """Print where an error and its causes were raised in other processes."""
    from flowrun.runtime.rpc.error_values import told_traceback  # not needed without a failure

    current: BaseException | None = error
    for _ in range(32):  # an error of a user may be its own cause
        if current is None:
            return
        if text := told_traceback(current):
            say(f"in another process:\n{printable(text)}")
        current = current.__cause__


def _is_broken_pipe(error: BaseException | None) -> bool:
    """Whether a failure comes from writing to a closed pipe."""
    seen: set[int] = set()  # a user's function may raise an error that is its own cause
    while error is not None and id(error) not in seen:
        if isinstance(error, BrokenPipeError):
            return True
        seen.add(id(error))
        error = error.__cause__
    return False
