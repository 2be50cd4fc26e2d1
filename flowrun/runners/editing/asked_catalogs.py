"""What catalogs say of their tables, asked beside the writing of SQL and kept for a while: who writes never waits for a server."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from flowrun.api.table_catalog import StoredTable, TableCatalog
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import STRING
from flowrun.frontend.sql.script.known_catalogs import KnownCatalog

PATIENCE_S = 2.0
"""How long somebody who asks for words waits for an answer at most; for one that takes longer nobody waits again."""
_KEPT_S = 60.0
"""How long an answer counts; then it is shown until there is another one."""
_FAILED_S = 30.0
"""How long a catalog that could not answer is left alone."""
_IDLE_S = 30.0
"""How long a connection is kept open for the next question."""

Question: TypeAlias = tuple[str, ...]
"""`databases`, `tables` of a database, or `table` with a database and a name; empty: there are none any more."""
Answer: TypeAlias = "Sequence[str] | Schema | None"


@record
class _Known:
    """An answer, or that there is none; until when it counts."""

    answer: Answer
    until: float


class AskedCatalogs:
    """The answers of catalogs.

    Each catalog is asked by a thread of its own, so that one that is slow or gone holds up no other. All methods but `settle` return at
    once, with what is known by now; any thread may call them.

    Args:
        now: a clock that only goes forward, s.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._changed = threading.Condition()
        self._known: dict[tuple[KnownCatalog, Question], _Known] = {}
        self._asked: dict[tuple[KnownCatalog, Question], float] = {}
        self._askers: dict[KnownCatalog, queue.SimpleQueue[Question]] = {}

    def databases(self, catalog: KnownCatalog) -> Sequence[str]:
        """Names of its databases; none: they are not known."""
        return _names(self._answer(catalog, ("databases",)))

    def tables(self, catalog: KnownCatalog, database: str) -> Sequence[str]:
        """Names of the tables and views of a database; none: they are not known."""
        return _names(self._answer(catalog, ("tables", database)))

    def columns(self, catalog: KnownCatalog, database: str, table: str) -> Schema | None:
        """The columns of a table; None: they are not known."""
        found = self._answer(catalog, ("table", database, table))
        return found if isinstance(found, Schema) else None

    @property
    def is_waiting(self) -> bool:
        """Whether an answer may come soon."""
        with self._changed:
            return self._youngest_waits() > 0

    def settle(self, seconds: float) -> None:
        """Wait until nothing is asked any more that may be answered soon, at most so long."""
        end = self._now() + seconds
        with self._changed:
            while (left := min(end - self._now(), self._youngest_waits())) > 0:
                self._changed.wait(left)

    def close(self) -> None:
        """Ask nothing more: connections are closed, each when its server has answered what it was asked before. Does not wait."""
        with self._changed:
            for questions in self._askers.values():
                questions.put(())
            self._askers.clear()

    def _youngest_waits(self) -> float:
        """How long an answer that was asked for last may still be waited for, s."""
        return max(self._asked.values(), default=0.0) + PATIENCE_S - self._now() if self._asked else 0.0

    def _answer(self, catalog: KnownCatalog, question: Question) -> Answer:
        with self._changed:
            known = self._known.get((catalog, question))
            if (known is None or known.until < self._now()) and (catalog, question) not in self._asked:
                self._asked[catalog, question] = self._now()
                if catalog not in self._askers:
                    self._askers[catalog] = queue.SimpleQueue()
                    name = "asks a catalog for names"
                    arguments = (catalog, self._askers[catalog])
                    threading.Thread(target=self._work, args=arguments, name=name, daemon=True).start()
                self._askers[catalog].put(question)
            return None if known is None else known.answer

    def _work(self, catalog: KnownCatalog, questions: queue.SimpleQueue[Question]) -> None:
        """Ask a catalog what is asked of it, until nothing was for a while."""
        tables = catalog.open()
        try:
            while True:
                try:
                    question = questions.get(timeout=_IDLE_S)
                except queue.Empty:
                    with self._changed:
                        if questions.empty():
                            self._askers.pop(catalog, None)
                            return
                    continue
                if not question:
                    return
                try:
                    answer, kept = _said(tables, question), _KEPT_S
                except Exception:
                    # What is wrong is told by statements that need the catalog; here its last answer has to do.
                    before = self._known.get((catalog, question))
                    answer, kept = None if before is None else before.answer, _FAILED_S
                with self._changed:
                    self._known[catalog, question] = _Known(answer, self._now() + kept)
                    del self._asked[catalog, question]
                    self._changed.notify_all()
        finally:
            tables.close()


def _said(tables: TableCatalog, question: Question) -> Answer:
    match question:
        case ("databases",):
            return list(tables.databases())
        case ("tables", database):
            return list(tables.tables(database) or ())
    _, database, name = question
    found = tables.table(database, name)
    return None if found is None else _columns(found)


def _columns(table: StoredTable) -> Schema:
    """The columns; STRING stands for a type that flowrun does not have."""
    return Schema.from_pairs((c.name, STRING if c.type is None else c.type) for c in table.columns)


def _names(answer: Answer) -> Sequence[str]:
    return () if answer is None or isinstance(answer, Schema) else answer
