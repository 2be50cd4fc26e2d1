"""`flowrun dead-letters list|show|replay`: what a pipeline could not read or process, and how records are given to it again."""

from __future__ import annotations

import functools
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from flowrun.cli.arguments import all_overrides, parse_assignments, pipeline_arguments
from flowrun.cli.time_range import epoch_ms
from flowrun.core.row_errors import RowFault

if TYPE_CHECKING:
    import pyarrow as pa

    from flowrun.plan.nodes import Plan
    from flowrun.runners.dead_letters.stores import LetterStore

F = TypeVar("F", bound=Callable[..., Any])
_LISTED = ("id", "time", "place", "source", "kind", "reason", "file", "offset", "topic")
_SHORT_ID = 12
_REASON = 72
_LEDGERS = Path(".flowrun") / "dead-letters"


@click.group("dead-letters")
def dead_letters() -> None:
    """List, show and replay the dead letters of a pipeline.

    They are read from where its sink of dead letters has written them. FILE is the pipeline, perhaps a newer version of it.
    """


def _common(command: F) -> F:
    """Add FILE, its options, and where the record of replays is; the command gets the optimised plan and the record's folder."""

    @functools.wraps(command)
    def with_plan(
        *args: Any,
        file: Path,
        variables: tuple[str, ...],
        overrides: tuple[str, ...],
        parallelism: int | None,
        ledger: Path | None,
        **rest: Any,
    ) -> Any:
        from flowrun.errors import PipelineError
        from flowrun.runners.compile import CompiledPipeline, compile_file

        compiled = compile_file(file, parse_assignments(variables, "--var"), all_overrides(overrides, parallelism))
        if not isinstance(compiled, CompiledPipeline):
            raise PipelineError.of(
                "dead letters of a program are JSON lines in its folder of dead letters",
                "these commands are for pipelines in YAML and SQL",
            )
        plan = compiled.optimised
        folder = file.absolute().parent / _LEDGERS / _file_name(plan.name) if ledger is None else ledger
        return command(*args, plan=plan, ledger=folder, **rest)

    option = click.option(
        "--ledger",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of the record of what was replayed; default: .flowrun/dead-letters/NAME beside the pipeline.",
    )
    return cast(F, pipeline_arguments(option(with_plan)))


def _chosen(command: F) -> F:
    """Add the options that choose letters; the command gets them as `choice`."""

    @functools.wraps(command)
    def with_choice(
        *args: Any, source: str | None, kind: str | None, since: str | None, until: str | None, **rest: Any
    ) -> Any:
        start = None if since is None else epoch_ms(since, "--since")
        stop = None if until is None else epoch_ms(until, "--until")
        return command(*args, choice={"source": source, "kind": kind, "since": start, "until": stop}, **rest)

    decorated: Any = with_choice
    for decorate in (
        click.option("--until", metavar="TIME", help="Only those that were put aside before this time."),
        click.option("--since", metavar="TIME", help="Only those that were put aside at this time or later."),
        click.option("--kind", type=click.Choice([f.value for f in RowFault]), help="Only those of this kind."),
        click.option("--source", help="Only those of this source."),
    ):
        decorated = decorate(decorated)
    return cast(F, decorated)


@dead_letters.command("list")
@_common
@_chosen
@click.option("--limit", type=click.IntRange(0), default=50, show_default=True, help="How many to show, the newest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, all of them, the oldest first.")
def list_command(plan: Plan, ledger: Path, choice: Mapping[str, Any], limit: int, as_json: bool) -> None:
    """List dead letters, and count them by place and kind."""
    from flowrun.cli.views.figures import counted_text
    from flowrun.cli.views.tables import show_table
    from flowrun.runners.dead_letters.ledger import replayed_letters
    from flowrun.runners.dead_letters.stores import rows_of

    letters = _read(plan, _LISTED, choice, (), needed=("id",))
    replayed = replayed_letters(ledger)
    rows = [{**row, "replayed": row["id"] in replayed} for row in rows_of(letters)]
    if as_json:
        for row in rows:
            click.echo(json.dumps({**row, "time": _time(row["time"])}, ensure_ascii=True))
        return
    if not rows:
        click.echo("there are no dead letters" + (" like these" if any(v is not None for v in choice.values()) else ""))
        return
    shown = rows[len(rows) - min(limit, len(rows)) :]
    if shown:
        cells = [
            (
                str(row["id"])[:_SHORT_ID],
                _time(row["time"]),
                str(row["place"]),
                str(row["kind"]),
                _where(row),
                "yes" if row["replayed"] else "",
                _cut(str(row["reason"])),
            )
            for row in shown
        ]
        show_table(("ID", "TIME", "PLACE", "KIND", "WHERE", "REPLAYED", "REASON"), cells)
        click.echo()
    counts = Counter((str(row["place"]), str(row["kind"])) for row in rows)
    show_table(("PLACE", "KIND", "LETTERS"), [(*key, str(n)) for key, n in sorted(counts.items())], right={"LETTERS"})
    again = sum(bool(row["replayed"]) for row in rows)
    click.echo(f"\n{counted_text(len(rows), 'letter')}, {len(shown)} shown, {again} replayed")


@dead_letters.command("show")
@_common
@click.argument("letter", metavar="ID")
@click.option("--hex", "as_hex", is_flag=True, help="Show the record's bytes as hexadecimal digits.")
@click.option("--raw", "as_raw", is_flag=True, help="Write the record's bytes as they are, and nothing else.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, bytes as Base64.")
def show_command(plan: Plan, ledger: Path, letter: str, as_hex: bool, as_raw: bool, as_json: bool) -> None:
    """Show one dead letter: what is wrong, where it came from, and the record. The beginning of an ID is enough."""
    from flowrun.cli.views.letter_text import letter_json, letter_lines
    from flowrun.core.row_errors import DEAD_LETTER_SCHEMA
    from flowrun.runners.dead_letters.ledger import replayed_letters
    from flowrun.runners.dead_letters.stores import rows_of

    found = _read(plan, DEAD_LETTER_SCHEMA.names, {}, (letter,), needed=("id",))
    *_, row = rows_of(found)
    if as_raw:
        raw = row["raw"]
        if raw is None:
            raise click.UsageError(f"letter {row['id']} has no record: it is a row, or a message without value")
        sys.stdout.buffer.write(cast(bytes, raw))
        sys.stdout.buffer.flush()
        return
    replayed = row["id"] in replayed_letters(ledger)
    if as_json:
        click.echo(letter_json({**row, "replayed": replayed}))
    else:
        for line in letter_lines(row, replayed=replayed, as_hex=as_hex):
            click.echo(line)


@dead_letters.command("replay")
@_common
@_chosen
@click.argument("letters", metavar="[ID]...", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="All records that were not replayed, or all that the options choose.")
@click.option(
    "--to",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the records to a new file, one a line, instead of giving them to the pipeline.",
)
def replay_command(
    plan: Plan, ledger: Path, choice: Mapping[str, Any], letters: tuple[str, ...], all_: bool, to: Path | None
) -> None:
    """Give records to the pipeline again, each once.

    A message is produced to its topic again, with a header that names the letter; a record of a file comes in a new file in the folder
    that its source reads. The pipeline as it runs then, perhaps a newer version of it, reads them like all others. What was replayed
    once is not replayed again, also if a replay was killed: it took place as a whole, or not at all.
    """
    from flowrun.cli.console import say
    from flowrun.cli.restoring import as_input_error
    from flowrun.cli.views.figures import counted_text
    from flowrun.errors import StateError
    from flowrun.runners.dead_letters.ledger import LetterLedger
    from flowrun.runners.dead_letters.replay import REPLAY_COLUMNS, LetterReplay, needed_columns
    from flowrun.runners.dead_letters.stores import letter_stores

    if bool(letters) == all_:
        raise click.UsageError("name the letters to replay, or say --all" + (", not both" if all_ else ""))
    wanted = {**choice, "kind": choice["kind"] or ("decoding" if all_ else None)}
    if all_ and wanted["kind"] != "decoding":
        raise click.UsageError("--all replays records: of --kind decoding")
    for store in letter_stores(plan):
        store.check_columns(needed_columns(store.schema.names), "to replay records")
    found = _read(plan, REPLAY_COLUMNS, wanted, letters, needed=())
    try:
        with LetterLedger(ledger) as record:
            done = LetterReplay(plan, record).replay(found, to)
    except StateError as error:
        raise as_input_error(error) from error
    for place, took_place in done.repaired:
        what = "took place" if took_place else "did not take place"
        say(f"a replay to {place} that was interrupted {what}")
    for place, count in done.letters.items():
        click.echo(f"{counted_text(count, 'letter')} replayed to {place}")
    if done.before:
        click.echo(f"{counted_text(done.before, 'letter')} replayed before: not again")
    if not done.letters and not done.before:
        click.echo("there is nothing to replay")


def _read(
    plan: Plan, columns: Sequence[str], choice: Mapping[str, Any], ids: Sequence[str], needed: tuple[str, ...]
) -> pa.Table:
    """The letters that are chosen; of each of `ids`, the beginnings of ids, there is one.

    Raises:
        UsageError: there is none of such an id, or several.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from flowrun.core.printable import printable
    from flowrun.runners.dead_letters.stores import letter_stores, read_letters

    stores = letter_stores(plan)
    asked = [n for n in ("source", "kind") if choice.get(n) is not None]
    asked += ["time"] if any(choice.get(n) is not None for n in ("since", "until")) else []
    for store in stores:
        _check(store, tuple(dict.fromkeys((*needed, *asked, *(("id",) if ids else ())))))

    def keeps(rows: pa.RecordBatch) -> pa.BooleanArray:
        kept = pa.repeat(pa.scalar(True), rows.num_rows)
        for name in ("source", "kind"):
            if choice.get(name) is not None:
                kept = pc.and_kleene(kept, pc.equal(rows.column(name), choice[name]))
        for name, compare in (("since", pc.greater_equal), ("until", pc.less)):
            if choice.get(name) is not None:
                times = rows.column("time").cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
                kept = pc.and_kleene(kept, compare(times, choice[name]))
        if ids:
            named = [pc.starts_with(rows.column("id"), pattern=i) for i in ids]
            kept = pc.and_kleene(kept, functools.reduce(pc.or_kleene, named))
        return kept

    found = read_letters(stores, tuple(columns), keeps)
    known = set(found.column("id").to_pylist()) if ids else set()
    for letter in ids:
        matching = sorted(i for i in known if i.startswith(letter))
        if not matching:
            raise click.UsageError(f"there is no dead letter '{printable(letter)}'; see flowrun dead-letters list")
        if len(matching) > 1:
            raise click.UsageError(f"'{letter}' is the beginning of several ids: {', '.join(matching[:3])}")
    return found


def _check(store: LetterStore, needed: tuple[str, ...]) -> None:
    store.check_columns(needed, "to find letters")


def _where(row: Mapping[str, Any]) -> str:
    return "" if row["offset"] is None else f"{row['file'] or row['topic']} @{row['offset']}"


def _time(moment: Any) -> str:
    return "" if moment is None else str(moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3])


def _cut(text: str) -> str:
    return text if len(text) <= _REASON else text[: _REASON - 1] + "…"


def _file_name(name: str) -> str:
    """A pipeline's name as that of a folder."""
    from urllib.parse import quote

    quoted = quote(name, safe=" ")
    return quoted.replace(".", "%2E") if quoted.startswith(".") else quoted
