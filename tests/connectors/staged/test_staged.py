"""Sinks whose rows wait beside the checkpoint, into a real database whose transactions cannot be resumed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from flowrun.api.sink import Committable, Committer, SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.staged.commit import STAGED_SHAPE, StagedCommit, StagedCommitter
from flowrun.connectors.staged.writer import StagedWriter
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import ConnectorError, StateError
from flowrun.testing.connector_conformance import check_sink, writer_context

SCHEMA = Schema.of(k=BIGINT, v=STRING)


@record
class Ledger:
    """A table in an SQLite file. A row whose `v` is `poison` is refused once, after others of its transaction were written."""

    path: str

    schema = SCHEMA
    delivery = Delivery.EXACTLY_ONCE

    @property
    def committable_shape(self) -> Shape:
        return STAGED_SHAPE

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return StagedWriter(context, SCHEMA.arrow, lambda batch: batch.columns)

    def create_committer(self) -> Committer:
        return StagedCommitter(lambda: LedgerTarget(self.path))

    def prepare(self) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("CREATE TABLE rows (k BIGINT, v TEXT)")
            connection.execute("CREATE TABLE commits (writer TEXT PRIMARY KEY, number BIGINT)")

    def rows(self) -> list[tuple[int, str]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute("SELECT k, v FROM rows").fetchall()


class LedgerTarget:
    refused = False

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def committed_number(self, writer: str) -> int:
        found = self._connection.execute("SELECT number FROM commits WHERE writer = ?", [writer]).fetchone()
        return 0 if found is None else int(found[0])

    def write(self, commit: StagedCommit, batches: Iterator[pa.RecordBatch]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._insert(commit, batches)
        self._connection.execute("COMMIT")

    def _insert(self, commit: StagedCommit, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            for row in batch.to_pylist():
                if row["v"] == "poison" and not LedgerTarget.refused:
                    LedgerTarget.refused = True
                    raise ConnectorError("the ledger is out of ink", retryable=True)
                self._connection.execute("INSERT INTO rows VALUES (?, ?)", list(row.values()))
        self._connection.execute("INSERT OR REPLACE INTO commits VALUES (?, ?)", [commit.writer, commit.number])

    def close(self) -> None:
        self._connection.close()


class JointLedgerTarget(LedgerTarget):
    """Notes how many commits each transaction held."""

    sizes: ClassVar[list[int]] = []

    def write_together(self, commits: Sequence[tuple[StagedCommit, Iterator[pa.RecordBatch]]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for commit, batches in commits:
            self._insert(commit, batches)
        self._connection.execute("COMMIT")
        self.sizes.append(len(commits))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(str(tmp_path / "ledger.db"))
    made.prepare()
    LedgerTarget.refused = False
    return made


def batch(*values: str) -> RecordBatch:
    columns = pa.record_batch({"k": pa.array(range(len(values)), pa.int64()), "v": list(values)}, SCHEMA.arrow)
    return RecordBatch(columns)


def staged(ledger: Ledger, staging: Path, *values: str, attempt: str = "a") -> list[Committable]:
    return staged_by(ledger.create_writer(writer_context(staging=str(staging), attempt=attempt)), *values)


def staged_by(writer: SinkWriter, *values: str) -> list[Committable]:
    writer.open()
    writer.write(batch(*values))
    writer.flush(True)
    found = list(writer.prepare_commit())
    writer.close()
    return found


def test_it_keeps_the_contract_of_sinks(ledger: Ledger, tmp_path: Path) -> None:
    staging = tmp_path / "state" / "staged"
    check_sink(ledger, [batch("a", "b"), batch("c"), batch("d", "e", "f")], ledger.rows, staging=str(staging))


def test_a_transaction_that_failed_half_way_is_made_again_whole(ledger: Ledger, tmp_path: Path) -> None:
    committables = staged(ledger, tmp_path / "staged", "a", "poison", "b")
    committer = ledger.create_committer()
    with pytest.raises(ConnectorError, match="out of ink"):
        committer.commit(committables)
    assert ledger.rows() == []
    committer.commit(committables)
    assert [v for _, v in ledger.rows()] == ["a", "poison", "b"]


def test_a_committer_that_is_closed_has_no_connection_left_and_may_commit_again(ledger: Ledger, tmp_path: Path) -> None:
    opened: list[LedgerTarget] = []

    def opening() -> LedgerTarget:
        opened.append(LedgerTarget(ledger.path))
        return opened[-1]

    committer = StagedCommitter(opening)
    committer.close()
    committer.commit(staged(ledger, tmp_path / "staged", "a"))
    committer.close()
    committer.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].committed_number("w")
    committer.commit(staged(ledger, tmp_path / "staged", "b", attempt="b"))
    committer.close()
    assert [v for _, v in ledger.rows()] == ["a", "b"]
    assert len(opened) == 2


def test_what_comes_after_a_commit_that_failed_waits_for_it(ledger: Ledger, tmp_path: Path) -> None:
    first, second = (staged(ledger, tmp_path / "staged", v, attempt=v) for v in ("poison", "b"))
    committer = ledger.create_committer()
    with pytest.raises(ConnectorError, match="out of ink"):
        committer.commit(first)
    with pytest.raises(ConnectorError, match="has to wait for commit"):
        committer.commit(second)
    assert ledger.rows() == [], "the number of the second one would say that the first one is written"
    committer.commit([*first, *second])
    assert [v for _, v in ledger.rows()] == ["poison", "b"]


def test_commits_of_several_writers_are_one_transaction_where_the_target_can(ledger: Ledger, tmp_path: Path) -> None:
    def of(subtask: int, *values: str, attempt: str) -> Committable:
        context = writer_context(staging=str(tmp_path / "staged"), attempt=attempt, subtask=subtask)
        (found,) = staged_by(ledger.create_writer(context), *values)
        return found

    JointLedgerTarget.sizes.clear()
    first = [of(0, "a", attempt="1"), of(1, "poison", attempt="1"), of(2, "c", attempt="1")]
    second = [of(0, "d", attempt="2")]
    committer = StagedCommitter(lambda: JointLedgerTarget(ledger.path))
    with pytest.raises(ConnectorError, match="out of ink"):
        committer.commit(first)
    assert ledger.rows() == []
    with pytest.raises(ConnectorError, match="has to wait for commit"):
        committer.commit(second)
    committer.commit([*second, *first])
    assert sorted(v for _, v in ledger.rows()) == ["a", "c", "d", "poison"]
    committer.commit([*second, *first])
    committer.close()
    assert len(ledger.rows()) == 4
    assert JointLedgerTarget.sizes == [3], "one commit alone is written alone, as is what a writer commits after it"


def test_a_commit_that_was_given_up_is_not_waited_for(ledger: Ledger, tmp_path: Path) -> None:
    first, second = (staged(ledger, tmp_path / "staged", v, attempt=v) for v in ("poison", "b"))
    committer = ledger.create_committer()
    with pytest.raises(ConnectorError):
        committer.commit(first)
    committer.abort(first)
    committer.commit(second)
    assert [v for _, v in ledger.rows()] == ["b"]


def test_what_is_recorded_is_not_written_again_whether_its_file_is_there_or_not(ledger: Ledger, tmp_path: Path) -> None:
    (committable,) = staged(ledger, tmp_path / "staged", "a")
    file = tmp_path / "staged" / committable.commit_id
    content = file.read_bytes()
    ledger.create_committer().commit([committable])
    assert not file.exists()
    ledger.create_committer().commit([committable])
    file.write_bytes(content)  # the process died between the transaction and the removal of the file
    ledger.create_committer().commit([committable])
    assert [v for _, v in ledger.rows()] == ["a"]
    assert not file.exists()


def test_rows_whose_file_is_gone_before_they_are_written_are_an_error(ledger: Ledger, tmp_path: Path) -> None:
    (committable,) = staged(ledger, tmp_path / "staged", "a")
    (tmp_path / "staged" / committable.commit_id).unlink()
    with pytest.raises(StateError, match="are gone"):
        ledger.create_committer().commit([committable])
    assert ledger.rows() == []


@pytest.mark.parametrize(
    ("name", "folder"), [("notes.txt", "staged"), ("staged-x.arrows", "elsewhere"), ("staged-../x.arrows", "staged")]
)
def test_altered_state_reads_and_removes_no_other_file(ledger: Ledger, tmp_path: Path, name: str, folder: str) -> None:
    (committable,) = staged(ledger, tmp_path / "staged", "a")
    altered = replace(committable, commit_id=name, payload={**committable.payload, "folder": str(tmp_path / folder)})
    for act in (ledger.create_committer().commit, ledger.create_committer().abort):
        with pytest.raises(StateError, match="somebody altered the state"):
            act([altered])


def test_a_writer_waits_for_a_committer_that_is_behind(ledger: Ledger, tmp_path: Path) -> None:
    paused: list[float] = []
    submitted: list[Committable] = []

    def pause(ms: float) -> None:
        assert len(paused) < 50, "the writer waits although a file was committed"
        paused.append(ms)
        if len(paused) == 2:
            ledger.create_committer().commit(submitted[:1])

    context = replace(writer_context(staging=str(tmp_path / "staged")), pause=pause)
    writer = StagedWriter(context, SCHEMA.arrow, lambda b: b.columns)
    for i in range(4):
        writer.write(batch(str(i)))
        committables = writer.prepare_commit()
        submitted += committables
        assert bool(paused) == (i == 3)
        writer.submitted(committables)
    writer.close()
    assert len(paused) == 2


def test_many_small_batches_are_gathered(ledger: Ledger, tmp_path: Path) -> None:
    writer = ledger.create_writer(writer_context(staging=str(tmp_path / "staged")))
    for i in range(1000):
        writer.write(batch(str(i)))
    (committable,) = writer.prepare_commit()
    size = committable.payload["bytes"]
    assert isinstance(size, int)
    assert size < 40_000
    ledger.create_committer().commit([committable])
    assert [v for _, v in ledger.rows()] == [str(i) for i in range(1000)]
