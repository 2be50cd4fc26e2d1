"""Proposes words in the SQL shell."""

from __future__ import annotations

from collections.abc import Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from flowrun.runners.editing.sql_words import sql_proposals
from flowrun.runners.sql_session import SqlSession


class SqlCompleter(Completer):
    """Proposes words for the statement before the cursor.

    Args:
        session: knows the tables.
    """

    def __init__(self, session: SqlSession) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """The words that begin with what stands before the cursor."""
        asked = complete_event.completion_requested
        for proposal in sql_proposals(
            document.text_before_cursor, document.text_after_cursor, self._session.tables, asked=asked
        ):
            yield Completion(proposal.text, -proposal.begun, display_meta=proposal.about)
