"""Reads statements from a terminal: over several lines, with history, completion and colours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import Output
from pygments.lexers.sql import SqlLexer

from flowrun.runners.sql_session import cut

QUIT = ("quit", "exit", "\\q")
_PROMPT = HTML("<b>flowrun&gt;</b> ")
_MORE = "      -> "
_PRIVATE = 0o600


class StatementPrompt:
    """The prompt of a session.

    Args:
        completer: proposes words.
        history: what was typed before; None: nothing.
        input: keys; None: the terminal's.
        output: the screen; None: the terminal.
    """

    def __init__(
        self,
        completer: Completer,
        history: History | None = None,
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        self._session: PromptSession[str] = PromptSession(
            _PROMPT,
            multiline=True,
            prompt_continuation=_MORE,
            lexer=PygmentsLexer(SqlLexer),
            completer=completer,
            complete_while_typing=True,
            complete_in_thread=True,  # a catalog may be slow to say what is in it
            auto_suggest=AutoSuggestFromHistory(),
            history=history or InMemoryHistory(),
            key_bindings=_keys(),
            enable_history_search=Condition(lambda: False),
            input=input,
            output=output,
        )

    def statements(self) -> Iterator[str]:
        """The statements that are typed, without semicolons, until the end of input; Ctrl-C forgets what was typed of one."""
        while True:
            try:
                text = self._session.prompt()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text.strip().rstrip(";").lower() in QUIT:
                return
            typed = cut(text)
            yield from typed.statements
            if typed.rest:
                yield typed.rest


def _keys() -> KeyBindings:
    """Enter ends the statement behind a semicolon, and breaks the line elsewhere; Alt-Enter always ends it."""
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text
        plain = text.strip().rstrip(";").lower()
        done = not text.strip() or plain in QUIT or (not cut(text).rest and buffer.document.is_cursor_at_the_end)
        if done:
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def history_file() -> Path | None:
    """Where typed statements are kept, made readable by this user only; None: there is no such place."""
    state = os.environ.get("XDG_STATE_HOME") or (
        os.path.expanduser("~/.local/state") if os.environ.get("HOME") else None
    )
    if state is None:
        return None
    path = Path(state) / "flowrun" / "sql_history"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, _PRIVATE))
        return path
    return None


def typed_before() -> History:
    """What this user has typed before."""
    path = history_file()
    return InMemoryHistory() if path is None else FileHistory(str(path))
