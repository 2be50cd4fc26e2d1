"""Proposes words in the SQL shell."""

from __future__ import annotations

from collections.abc import Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from flowrun.runners.editing.asked_catalogs import PATIENCE_S, AskedCatalogs
from flowrun.runners.editing.catalog_words import CatalogWords
from flowrun.runners.editing.sql_words import sql_proposals
from flowrun.runners.editing.words import Proposal
from flowrun.runners.sql_session import SqlSession

_WHILE_TYPING_S = 0.3
"""How long the answer of a catalog is waited for where nobody has asked for words."""


class SqlCompleter(Completer):
    """Proposes words for the statement before the cursor. It waits a moment for a catalog that is asked, so it is called beside the prompt.

    Args:
        session: knows the tables and catalogs.
    """

    def __init__(self, session: SqlSession) -> None:
        self._session = session
        self._asked = AskedCatalogs()

    def close(self) -> None:
        """Ask catalogs nothing more."""
        self._asked.close()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """The words that begin with what stands before the cursor."""
        asked = complete_event.completion_requested
        found = self._proposals(document, asked=asked)
        if self._asked.is_waiting:
            self._asked.settle(PATIENCE_S if asked else _WHILE_TYPING_S)
            found = self._proposals(document, asked=asked)
        for proposal in found:
            yield Completion(proposal.text, -proposal.begun, display_meta=proposal.about)

    def _proposals(self, document: Document, *, asked: bool) -> list[Proposal]:
        catalogs = CatalogWords(self._session.catalogs, self._asked)
        before, after = document.text_before_cursor, document.text_after_cursor
        return list(sql_proposals(before, after, self._session.tables, asked=asked, catalogs=catalogs))
