"""`flowrun dev FILE`: shows what a pipeline makes of a sample of its input, and how its tests go, again whenever something changes.

Each round is done by processes of its own, so it sees the functions as they are in their files now, and whatever breaks in it ends that
round only.
"""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from flowrun.cli.arguments import pipeline_arguments
from flowrun.cli.preview import sample_options

_SUFFIXES = (".yaml", ".yml", ".sql", ".py", ".proto", ".avsc")
_SETTLED_MS = 150
_SHOWN = 5
_TABLES = dict[str, list[list[str | None]]]


@click.command()
@pipeline_arguments
@sample_options(rows=10, sample=10_000)
@click.option(
    "--once", is_flag=True, help="One round; exits with 1 if the pipeline or a test fails, with 2 if they are wrong."
)
@click.pass_context
def dev(
    ctx: click.Context,
    file: Path,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    sinks: tuple[str, ...],
    step: str | None,
    rows: int,
    sample: int,
    limit: int,
    once: bool,
) -> None:
    """Show what a pipeline makes of a sample of its input, and how its tests go, again whenever something changes.

    Watched are the folder of FILE, or that of its project, and those below: pipelines, tests, Python functions, schemas. The tests are
    those in NAME.test.yaml files that name FILE. Nothing is written to sinks, and no state is kept. Ctrl-C ends it.
    """
    from flowrun.cli.console import EXIT_OK, say

    if not file.is_file():
        from flowrun.errors import PipelineError

        raise PipelineError.of(f"there is no file '{file}'")
    words = [*_given("--var", variables), *_given("--set", overrides), *_given("--sink", sinks)]
    if parallelism is not None:
        words += ["--parallelism", str(parallelism)]
    if step is not None:
        words += ["--step", step]
    words += ["--rows", str(rows), "--sample", str(sample), "--for", f"{limit}ms"]
    before: _TABLES | None = None
    environment = _environment(overrides)
    for changed in _rounds(file, once=once):
        if sys.stdout.isatty():
            click.clear()
        _say_what_changed(file, changed)
        code, before = _round(file, words, environment, before)
        if once:
            ctx.exit(code)
        say(click.style("waiting for changes; Ctrl-C ends", dim=True))
    ctx.exit(EXIT_OK)


def _environment(overrides: Iterable[str]) -> list[str]:
    """The words that choose the environment for the tests, which have their other values themselves."""
    from flowrun.cli.arguments import parse_assignments
    from flowrun.frontend.project_file import ENVIRONMENT

    name = parse_assignments(overrides, "--set").get(ENVIRONMENT)
    return [] if name is None else ["--env", name]


def _given(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _rounds(file: Path, *, once: bool) -> Iterator[Sequence[Path]]:
    """What has changed, at the beginning nothing; then again and again. What changes during a round counts for the next one."""
    if once:
        yield ()
        return
    from flowrun.frontend.project_file import project_file

    project, stop = project_file(file.parent), threading.Event()
    folder = (file if project is None else project).absolute().parent
    changes: queue.SimpleQueue[set[Path]] = queue.SimpleQueue()
    watcher = threading.Thread(target=_watch, args=(folder, stop, changes), name="flowrun-watch", daemon=True)
    watcher.start()
    try:
        yield ()
        while True:
            changed = changes.get()
            while not changes.empty():
                changed |= changes.get()
            yield sorted(changed)
    except KeyboardInterrupt:
        return
    finally:
        stop.set()
        watcher.join()


def _watch(folder: Path, stop: threading.Event, changes: queue.SimpleQueue[set[Path]]) -> None:
    from watchfiles import watch

    def counts(_: object, path: str) -> bool:
        return _counts(folder, Path(path))

    for found in watch(folder, watch_filter=counts, step=_SETTLED_MS, stop_event=stop, raise_interrupt=False):
        changes.put({Path(path) for _, path in found})


def _counts(folder: Path, path: Path) -> bool:
    """Whether a change of this file may change what is shown."""
    parts = path.relative_to(folder).parts if path.is_relative_to(folder) else ()
    return path.suffix.lower() in _SUFFIXES and not any(part.startswith((".", "__pycache__")) for part in parts)


def _say_what_changed(file: Path, changed: Sequence[Path]) -> None:
    names = ", ".join(os.path.relpath(path) for path in changed[:_SHOWN])
    about = f"changed: {names}" if changed else "first look"
    click.echo(click.style(f"{file}  {time.strftime('%H:%M:%S')}  ", bold=True) + click.style(about, dim=True))


def _round(
    file: Path, words: Sequence[str], environment: Sequence[str], before: _TABLES | None
) -> tuple[int, _TABLES | None]:
    """Show the rows, how they differ from those of the round before, and how the tests go; gives (exit code, the rows)."""
    with tempfile.TemporaryDirectory(prefix="flowrun-dev-") as folder:
        report = Path(folder) / "report.json"
        code = _flowrun("preview", str(file), *words, "--report", str(report))
        shown = json.loads(report.read_text(encoding="utf-8")) if report.exists() else None
    tables: _TABLES | None = None if shown is None or shown["was_cut"] else shown["rows"]
    if tables is not None and before is not None:
        _say_how_rows_differ(before, tables)
    tests = named_tests(file)
    if tests:
        code = max(code, _flowrun("test", *environment, *map(str, tests)))
    return code, before if tables is None else tables


def _flowrun(*words: str) -> int:
    """Run a command of flowrun with this terminal; gives its exit code."""
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "flowrun", *words], check=False).returncode


def named_tests(file: Path) -> list[Path]:
    """The files of tests below the folder of a pipeline, or beside it in `tests`, that name it."""
    from flowrun.runners.pipeline_tests.files import is_test_file

    pattern = re.compile(rf"^\s*pipeline:\s*[\"']?(?:\S*/)?{re.escape(file.name)}[\"']?\s*(?:#.*)?$", re.MULTILINE)
    folder = file.parent
    places = {*folder.rglob("*.test.yaml"), *(folder.parent / "tests").glob("*.test.yaml")}
    return sorted(p for p in places if is_test_file(p) and pattern.search(_text(p)))


def _text(path: Path) -> str:
    """The text of a file; empty if it cannot be read, or is gone by now."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _say_how_rows_differ(
    before: Mapping[str, Sequence[Sequence[Any]]], now: Mapping[str, Sequence[Sequence[Any]]]
) -> None:
    from flowrun.cli.views.figures import counted_text

    for name in now:
        if name not in before:
            continue
        old, new = (Counter(tuple(row) for row in tables[name]) for tables in (before, now))
        gone, come = list((old - new).elements()), list((new - old).elements())
        if not gone and not come:
            continue
        click.echo(click.style(f"{name}: {counted_text(len(come), 'row')} came, {len(gone)} went", bold=True))
        for mark, color, rows in (("-", "red", gone), ("+", "green", come)):
            for row in rows[:_SHOWN]:
                click.echo(click.style(f"  {mark} " + ", ".join("NULL" if v is None else v for v in row), fg=color))
