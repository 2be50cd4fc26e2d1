"""Replays dead letters: what a source could not read is put again where it reads, each letter once, over kills and other replays.

`docs/adr/043-dead-letters.md` says what "through the running pipeline" means.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowrun.api.source import Source
from flowrun.connectors.filesystem.source import FileSource
from flowrun.connectors.kafka.source import KafkaSource
from flowrun.core.record import record
from flowrun.errors import OptionError, PipelineError, did_you_mean
from flowrun.plan.nodes import Plan, Scan, walk_plan
from flowrun.plan.tables import create_source
from flowrun.runners.dead_letters.ledger import LetterLedger, Replay
from flowrun.runners.dead_letters.stores import rows_of
from flowrun.runners.dead_letters.targets import (
    FileTarget,
    FolderTarget,
    Letter,
    ReplayTarget,
    TopicTarget,
    check_lines,
    new_replay_id,
    settled,
    target_folder,
)

REPLAY_COLUMNS = (
    "id",
    "time",
    "source",
    "kind",
    "file",
    "offset",
    "topic",
    "partition",
    "timestamp",
    "key",
    "headers",
    "raw",
)
NEEDED_COLUMNS = ("id", "source", "kind", "file", "offset", "raw")
_OF_MESSAGES = ("topic", "partition", "key", "headers")
_INTO_A_FILE = "replay it into a file: --to FILE"
Destination = tuple[str, str, str]
"""(kind: `topic`, `folder` or `file`; the source; the topic, folder or file)."""


@record
class Replayed:
    """What a replay did: how many letters went where, and what became of replays that had been interrupted before."""

    letters: Mapping[str, int]
    before: int
    repaired: tuple[tuple[str, bool], ...] = ()


class LetterReplay:
    """Replays letters of a pipeline.

    Args:
        plan: optimised; its sources are where letters go.
        ledger: open.
    """

    def __init__(self, plan: Plan, ledger: LetterLedger) -> None:
        self._plan = plan
        self._ledger = ledger
        self._scans = {n.table.name: n for n in walk_plan(plan) if isinstance(n, Scan)}
        self._sources: dict[str, Source] = {}

    def settle(self) -> tuple[tuple[str, bool], ...]:
        """Find out what became of replays that were interrupted: (where to, whether they took place) of each.

        Raises:
            StateError: it cannot be said of one.
        """
        found = []
        for replay in self._ledger.unfinished:
            target = self._target((replay.target["kind"], replay.target["source"], replay.target["place"]))
            try:
                took_place = settled(target, replay.target)
                found.append((str(target), took_place))
            finally:
                target.close()
            self._ledger.end(replay, took_place=took_place)
        return tuple(found)

    def replay(self, letters: pa.Table, to: Path | None) -> Replayed:
        """Replay those of the letters that were not before.

        Args:
            letters: with `REPLAY_COLUMNS`.
            to: a new file for them; None: where their sources read.

        Raises:
            PipelineError: a letter is none of a record, or nothing can be put where its source reads; nothing was replayed.
            ConnectorError: letters could not be written; those of destinations before were.
        """
        repaired = self.settle()
        done = self._ledger.replayed
        wanted = {str(row["id"]): row for row in rows_of(letters)}
        fresh = [row for letter_id, row in wanted.items() if letter_id not in done]
        groups: dict[Destination, list[Letter]] = defaultdict(list)
        for row in fresh:
            groups[self._destination(row, to)].append(_letter(row))
        for destination, group in groups.items():
            self._check(destination, group)
        counts: dict[str, int] = {}
        for destination, group in groups.items():
            counts[self._write(destination, group)] = len(group)
        return Replayed(counts, len(wanted) - len(fresh), repaired)

    def _write(self, destination: Destination, letters: Sequence[Letter]) -> str:
        kind, source, place = destination
        target = self._target(destination)
        try:
            replay_id = new_replay_id()
            plan = {"kind": kind, "source": source, "place": place, **target.plan(replay_id)}
            replay = Replay(replay_id, plan, tuple(letter.letter_id for letter in letters))
            self._ledger.begin(replay)
            target.write(plan, letters)
            self._ledger.end(replay, took_place=True)
        finally:
            target.close()
        return str(target)

    def _destination(self, row: Mapping[str, Any], to: Path | None) -> Destination:
        letter_id, name = str(row["id"]), row["source"]
        if row["kind"] != "decoding" or not name:
            raise PipelineError.of(
                f"letter {letter_id} is a row ({row['kind']}), not a record of a source: it cannot be replayed",
                "mend the step or the rows, and run the pipeline over them again; --source and --kind decoding choose records",
            )
        if to is not None:
            return "file", "", str(to.absolute())
        if row["partition"] is not None:
            return "topic", name, row["topic"]
        source = self._source(name)
        if not isinstance(source, FileSource):
            raise PipelineError.of(f"letter {letter_id} is of a file, but source '{name}' reads none now", _INTO_A_FILE)
        return "folder", name, target_folder(source, str(row["file"]), name, _INTO_A_FILE)

    def _check(self, destination: Destination, letters: Sequence[Letter]) -> None:
        kind, name, place = destination
        if kind == "folder":
            check_lines(self._source(name), letters, name, _INTO_A_FILE)
        elif kind == "file":
            if Path(place).exists():
                raise PipelineError.of(f"'{place}' is there already", "name a new file")
            if not Path(place).absolute().parent.is_dir():
                raise PipelineError.of(f"there is no folder for '{place}'", "make it first")
            for letter in letters:
                if letter.raw is None or b"\n" in letter.raw:
                    what = "no value" if letter.raw is None else "line ends"
                    raise PipelineError.of(
                        f"the record of letter {letter.letter_id} has {what}: it is no line of a file",
                        f"flowrun dead-letters show FILE {letter.letter_id} --raw > record",
                    )
        elif not isinstance(self._source(name), KafkaSource):
            raise PipelineError.of(
                f"letters of topic '{place}' are there, but source '{name}' reads none", _INTO_A_FILE
            )

    def _target(self, destination: Destination) -> ReplayTarget:
        kind, name, place = destination
        if kind == "file":
            return FileTarget(Path(place))
        source = self._source(name)
        if kind == "topic" and isinstance(source, KafkaSource):
            return TopicTarget(source, self._plan.name, place)
        if kind == "folder" and isinstance(source, FileSource):
            return FolderTarget(source, place)
        raise PipelineError.of(
            f"letters were being replayed to {kind} '{place}', which source '{name}' does not read now"
        )

    def _source(self, name: str) -> Source:
        found = self._sources.get(name)
        if found is None:
            scan = self._scans.get(name)
            if scan is None:
                hint = did_you_mean(name, self._scans) or _INTO_A_FILE
                raise PipelineError.of(f"the pipeline has no source '{name}' any more", hint)
            try:
                found = create_source(scan.table, scan.physical, scan.declared, scan.filters)
            except OptionError as error:
                raise PipelineError.of(f"source '{name}': {error.message}", error.hint) from error
            self._sources[name] = found
        return found


def _letter(row: Mapping[str, Any]) -> Letter:
    time = row["timestamp"]
    return Letter(
        letter_id=str(row["id"]),
        raw=row["raw"],
        file=str(row["file"]),
        topic=row["topic"],
        partition=row["partition"],
        timestamp_ms=None if time is None else round(time.timestamp() * 1000),
        key=row["key"],
        headers=row["headers"],
    )


def needed_columns(schema_names: Sequence[str]) -> tuple[str, ...]:
    """The columns without which letters of a store cannot be replayed: those of messages, too, if it has any of them."""
    of_messages = any(n in schema_names for n in _OF_MESSAGES)
    return (*NEEDED_COLUMNS, *_OF_MESSAGES) if of_messages else NEEDED_COLUMNS
