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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from flowrun.cli.arguments import pipeline_arguments
from flowrun.cli.preview import sample_options

_SUFFIXES = (".yaml", ".yml", ".sql", ".py", ".proto", ".avsc")
_PIPELINE = re.compile(
    r"""^\{?\s*["']?pipeline["']?\s*:\s*(?:"([^"]*)"|'([^']*)'|(.*?))\s*(?:[,#}].*)?$""", re.MULTILINE
)
_SETTLED_MS = 150
_AGAIN_S = 0.5
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

    Watched are the folder of FILE, or that of its project, and those below: pipelines, tests and their files of rows, Python functions,
    schemas; without a project the folder `tests` beside it, too. The tests are those in NAME.test.yaml files that name FILE. Nothing is
    written to sinks, and no state is kept. Ctrl-C ends it.
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
    folders, stop = _watched(file), threading.Event()
    changes: queue.SimpleQueue[set[Path] | Exception] = queue.SimpleQueue()
    watcher = threading.Thread(target=_watch, args=(folders, stop, changes), name="flowrun-watch", daemon=True)
    watcher.start()
    try:
        yield ()
        while True:
            changed = _next(changes)
            while not changes.empty():
                changed |= _next(changes)
            yield sorted(changed)
    except KeyboardInterrupt:
        return
    finally:
        stop.set()
        watcher.join()


def _next(changes: queue.SimpleQueue[set[Path] | Exception]) -> set[Path]:
    """What has changed; it waits. Raises FlowrunError: nothing can be watched."""
    from flowrun.errors import FlowrunError

    found = changes.get()
    if isinstance(found, Exception):
        hint = "WATCHFILES_FORCE_POLLING=1 looks at the files again and again instead"
        raise FlowrunError(f"cannot watch files: {found}", hint=hint) from found
    return found


def _watched(file: Path) -> tuple[Path, ...]:
    """The folder of the pipeline's project; without one its own, and `tests` beside that, which need not be there."""
    from flowrun.frontend.project_file import project_file

    project = project_file(file.parent)
    if project is not None:
        return (project.absolute().parent,)
    own = file.absolute().parent
    return own, own.parent / "tests"


def _watch(folders: Sequence[Path], stop: threading.Event, changes: queue.SimpleQueue[set[Path] | Exception]) -> None:
    def counts(_: object, path: str) -> bool:
        return any(_counts(folder, Path(path)) for folder in folders)

    try:
        known = _identities(folders)
        while not stop.is_set():
            there = [folder for folder, identity in zip(folders, known, strict=True) if identity is not None]
            for found in _changes(there, counts, stop):
                if found:
                    changes.put(found)
                if (now := _identities(folders)) != known:  # moved, or another version of them is checked out
                    changes.put({f for f, old, new in zip(folders, known, now, strict=True) if old != new})
                    known = now
                    break
    except (OSError, RuntimeError) as error:  # no more watches are to be had, say
        changes.put(error)


def _changes(
    folders: Sequence[Path], counts: Callable[[object, str], bool], stop: threading.Event
) -> Iterator[set[Path]]:
    """What changes in folders, in groups; an empty group from time to time."""
    from watchfiles import watch

    if not folders:
        stop.wait(_AGAIN_S)
        yield set()
        return
    for found in watch(
        *folders, watch_filter=counts, step=_SETTLED_MS, stop_event=stop, raise_interrupt=False,
        yield_on_timeout=True, rust_timeout=int(_AGAIN_S * 1_000),
    ):  # fmt: skip
        yield {Path(path) for _, path in found}


def _identities(folders: Sequence[Path]) -> list[tuple[int, int] | None]:
    """Which folders are there under these names; None: there is none."""
    found: list[tuple[int, int] | None] = []
    for folder in folders:
        try:
            status = folder.stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_dev, status.st_ino))
    return found


def _counts(folder: Path, path: Path) -> bool:
    """Whether a change of this file below a folder may change what is shown."""
    if not path.is_relative_to(folder) or any(
        p.startswith((".", "__pycache__")) for p in path.relative_to(folder).parts
    ):
        return False
    return path.suffix.lower() in _SUFFIXES or _has_rows_of_a_test(folder, path)


def _has_rows_of_a_test(folder: Path, path: Path) -> bool:
    """Whether a file of tests beside a file or above it names it."""
    from flowrun.frontend.pipeline_tests.finding import SUFFIXES

    places = [place for place in path.parents if place.is_relative_to(folder)]
    tests = (test for place in places for suffix in SUFFIXES for test in place.glob(f"*{suffix}"))
    return any(path.name in _text(test) for test in tests)


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
        shown = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
        tables: _TABLES | None = None if shown.get("was_cut", True) else shown["rows"]
        if tables is not None and before is not None:
            _say_how_rows_differ(before, tables)
        tests = named_tests(file)
        if tests:
            code = max(code, _flowrun("test", *environment, "--told", str(report), *map(str, tests)))
    return code, before if tables is None else tables


def _flowrun(*words: str) -> int:
    """Run a command of flowrun with this terminal; gives its exit code."""
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "flowrun", *words], check=False).returncode


def named_tests(file: Path) -> list[Path]:
    """The files of tests that name a pipeline: below the folder of its project; without one below its own, or beside that in `tests`."""
    from flowrun.frontend.pipeline_tests.finding import SUFFIXES

    found = (Path(place) / name for folder in _watched(file) for place, name in _files(folder))
    tests = (path for path in found if path.name.endswith(SUFFIXES) and _names(path, file))
    here = Path.cwd()
    return sorted(path.relative_to(here) if path.is_relative_to(here) else path for path in dict.fromkeys(tests))


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    """(folder, name) of all files below a folder that are not hidden; what vanishes meanwhile is left out."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        yield from ((place, name) for name in names if not name.startswith("."))


def _names(test: Path, file: Path) -> bool:
    """Whether a file of tests, which may be broken, names a pipeline."""
    found = _PIPELINE.search(_text(test))
    if found is None:
        return False
    name = next(text for text in found.groups() if text is not None)
    if "${" in name:
        return Path(name).name == file.name
    return os.path.realpath(test.parent / name) == os.path.realpath(file)


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
