"""The log of a command: where it goes, and how its lines read."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from flowrun.core.log_context import log_context
from flowrun.core.printable import printable
from flowrun.core.recent_logs import keep_recent_logs
from flowrun.core.record import record
from flowrun.masking import masked

F = TypeVar("F", bound=Callable[..., Any])
LEVELS = ("debug", "info", "warning", "error")


@record
class LogOptions:
    """What the user says of the log.

    Attributes:
        level: the lowest that is logged.
        form: `text` or `json`, one object a line.
        file: that it is appended to; None: standard error.
    """

    level: str = "warning"
    form: str = "text"
    file: Path | None = None


def log_options(level: str = "warning") -> Callable[[F], F]:
    """Adds --log-level, --log-format and --log-file; the command gets them as one argument `log`.

    Args:
        level: if the user names none.
    """

    def add(command: F) -> F:
        @functools.wraps(command)
        def with_log(*args: Any, log_level: str, log_format: str, log_file: Path | None, **rest: Any) -> Any:
            return command(*args, log=LogOptions(log_level, log_format, log_file), **rest)

        decorated: Any = with_log
        for decorate in (
            click.option(
                "--log-file",
                type=click.Path(path_type=Path, dir_okay=False),
                metavar="PATH",
                help="Append the log to this file, not to standard error. It is opened anew when logrotate moves it away.",
            ),
            click.option(
                "--log-format",
                type=click.Choice(("text", "json")),
                default="text",
                show_default=True,
                help="Of the log; json: one object a line, with job, vertex, subtask and worker.",
            ),
            click.option(
                "--log-level", type=click.Choice(LEVELS), default=level, show_default=True, help="Of the log."
            ),
        ):
            decorated = decorate(decorated)
        return cast("F", decorated)

    return add


def start_log(options: LogOptions) -> None:
    """Have this process, and those that it forks, log as the user says.

    Several processes write to one file: each line by one call, behind all others (`O_APPEND`). So it is for logrotate to move it away, and
    whoever logs next opens a new one; a process that renames it itself would take it from the others.

    Raises:
        click.BadParameter: the file cannot be written.
    """
    handler: logging.Handler
    if options.file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        from logging.handlers import WatchedFileHandler  # few runs need it

        try:
            handler = WatchedFileHandler(options.file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise click.BadParameter(
                f"{options.file} cannot be written: {error.strerror or error}", param_hint="--log-file"
            ) from None
    handler.setFormatter(JsonLines() if options.form == "json" else TextLines())
    logging.basicConfig(level=options.level.upper(), handlers=[handler])
    keep_recent_logs()


class TextLines(logging.Formatter):
    """Lines for people: time, level, module, the subtask and process if they are known, and the message.

    Names and data in them may hold control sequences for a terminal, which are written as escapes, and secrets, which are masked.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(place)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        place = log_context().place
        record.place = f" [{place}]" if place else ""
        return printable(masked(super().format(record)))


class JsonLines(logging.Formatter):
    """One JSON object a line, in ASCII: `time` (RFC 3339, UTC), `level`, `logger`, `message`, and what is known of `job_id`, `job`,
    `vertex`, `subtask` (from 0), `attempt`, `worker` and `error` (`type`, `message`, `traceback`). Secrets are masked.
    """

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        import json
        import traceback

        place = log_context()
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": masked(record.getMessage()),
        }
        for name in ("job_id", "job", "vertex", "subtask", "attempt", "worker"):
            if (value := getattr(place, name)) is not None:
                line[name] = masked(value) if isinstance(value, str) else value
        if record.exc_info and record.exc_info[0] is not None:
            kind, error, trace = record.exc_info
            line["error"] = {
                "type": kind.__name__,
                "message": masked(str(error)),
                "traceback": masked("".join(traceback.format_exception(kind, error, trace))),
            }
        return json.dumps(line)
