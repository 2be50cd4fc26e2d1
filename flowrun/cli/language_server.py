"""`flowrun lsp`: the language server of pipelines, for editors that speak the Language Server Protocol (VS Code, Neovim, JetBrains, Emacs).

It speaks on standard input and output. What it knows is in `flowrun.runners.editing`; here it is put into the protocol's words: places are
in UTF-16 code units there, and in code points everywhere else.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from flowrun import __version__
from flowrun.api.client_library import ClientLibrary
from flowrun.frontend.pipeline import SQL_SUFFIXES

if TYPE_CHECKING:
    from lsprotocol import types as lsp
    from pygls.lsp.server import LanguageServer
    from pygls.workspace import TextDocument

    from flowrun.errors import Diagnostic
    from flowrun.runners.editing.analysis import Analysis
    from flowrun.runners.editing.catalog_words import CatalogWords
    from flowrun.runners.editing.words import Proposal

CLIENT = ClientLibrary("lsp", ("pygls", "lsprotocol"))
SETTLED_S = 0.3
"""How long nothing is typed before a text is looked at."""
CATALOGS_S = 0.5
"""How long words are waited for that catalogs are asked for; what comes later is proposed with the next key."""
HOVER_S = 2.0
"""How long a catalog is waited for that knows what a word is."""
_KINDS = {
    "keyword": "Keyword", "catalog": "Module", "database": "Module", "table": "Class", "column": "Field", "function": "Function",
    "option": "Property", "key": "Property", "value": "EnumMember",
}  # fmt: skip


@click.command()
def language_server() -> None:
    """Speak with an editor: problems at their places, completion, what words are, where they were declared.

    The protocol goes over standard input and output; the editor starts this command. Python functions that a pipeline names are imported
    when it is opened, as when it is validated: open only folders that you trust.
    """
    CLIENT.module("pygls.lsp.server", "flowrun lsp")
    logging.basicConfig(level=logging.ERROR)
    make_server().start_io(*_streams())


def make_server() -> LanguageServer:
    """A language server that is not started yet."""
    from lsprotocol import types as lsp
    from pygls.lsp.server import LanguageServer

    server = LanguageServer("flowrun", __version__)
    documents = _Documents(server)

    @server.feature(lsp.INITIALIZED)
    def initialized(_: lsp.InitializedParams) -> None:
        root = server.workspace.root_path
        if root is not None and os.path.isdir(root):
            os.chdir(root)  # where relative paths of connectors start

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        await documents.look_at(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        await documents.look_at_soon(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def saved(params: lsp.DidSaveTextDocumentParams) -> None:
        await documents.look_at(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        documents.forget(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "'", " ", "{"]))
    async def complete(params: lsp.CompletionParams) -> lsp.CompletionList:
        return await documents.proposals(params.text_document.uri, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        return await documents.about(params.text_document.uri, params.position)

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def define(params: lsp.DefinitionParams) -> lsp.Location | None:
        return documents.definition(params.text_document.uri, params.position)

    return server


class _Documents:
    """The texts that the editor has open, as they were understood last."""

    def __init__(self, server: LanguageServer) -> None:
        from flowrun.runners.editing.asked_catalogs import AskedCatalogs

        self._server = server
        self._asked = AskedCatalogs()
        self._analyses: dict[str, Analysis] = {}
        self._turns = itertools.count()
        self._turn: dict[str, int] = {}
        """The number of what was begun last for a text: what is older counts no more."""

    async def look_at_soon(self, uri: str) -> None:
        """Look at a text once nothing was typed for a moment."""
        turn = self._turn[uri] = next(self._turns)
        await asyncio.sleep(SETTLED_S)
        if self._turn.get(uri) == turn:
            await self.look_at(uri)

    async def look_at(self, uri: str) -> None:
        """Tell the editor what is wrong with a text now, unless it is another one by then, or closed."""
        from lsprotocol import types as lsp

        from flowrun.runners.editing.analysis import analyse

        turn = self._turn[uri] = next(self._turns)
        document = self._server.workspace.get_text_document(uri)
        found = await asyncio.to_thread(analyse, _path(document), document.source)
        if self._turn.get(uri) != turn:
            return
        before = self._analyses.get(uri)
        tables = found.tables if found.is_right or before is None else {**before.tables, **found.tables}
        functions = found.functions or (() if before is None else before.functions)
        self._analyses[uri] = replace(found, tables=tables, functions=functions)
        told = [self._problem(document, problem) for problem in found.problems]
        self._server.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri=uri, diagnostics=told, version=document.version)
        )

    def forget(self, uri: str) -> None:
        """The editor has closed it."""
        from lsprotocol import types as lsp

        self._analyses.pop(uri, None)
        self._turn.pop(uri, None)
        self._server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri=uri, diagnostics=[]))

    async def proposals(self, uri: str, position: lsp.Position) -> lsp.CompletionList:
        """The words that may stand at a place. They are incomplete, so that the editor asks again, while a catalog is asked."""
        from lsprotocol import types as lsp

        from flowrun.runners.editing.catalog_words import CatalogWords

        document, line, column = self._place(uri, position)
        analysis = self._analysis(uri)
        catalogs = CatalogWords(analysis.catalogs, self._asked)
        here = (_path(document), document.source, line, column, analysis, catalogs)
        found = _proposals(*here)
        if self._asked.is_waiting:
            await asyncio.to_thread(self._asked.settle, CATALOGS_S)
            found = _proposals(*here)
        items = []
        for number, proposal in enumerate(found):
            begin = self._server.workspace.get_text_document(uri).position_codec.position_to_client_units(
                document.lines, lsp.Position(line, column - proposal.begun)
            )
            items.append(
                lsp.CompletionItem(
                    label=proposal.text.strip().rstrip(":("),
                    kind=getattr(lsp.CompletionItemKind, _KINDS[proposal.kind]),
                    detail=proposal.about or None,
                    sort_text=f"{number:05}",
                    filter_text=proposal.text.strip("`"),
                    text_edit=lsp.TextEdit(lsp.Range(begin, position), proposal.text),
                )
            )
        return lsp.CompletionList(is_incomplete=self._asked.is_waiting, items=items)

    async def about(self, uri: str, position: lsp.Position) -> lsp.Hover | None:
        """What a word is. Catalogs are waited for, each question once and not long; other requests are answered meanwhile."""
        from lsprotocol import types as lsp

        from flowrun.runners.editing.catalog_words import CatalogWords
        from flowrun.runners.editing.meaning import about

        document, line, column = self._place(uri, position)
        analysis = self._analysis(uri)
        here = (_path(document), document.source, line, column, analysis, CatalogWords(analysis.catalogs, self._asked))
        end = time.monotonic() + HOVER_S
        text = about(*here)
        while text is None and self._asked.is_waiting and (left := end - time.monotonic()) > 0:
            await asyncio.to_thread(self._asked.settle, left)
            text = about(*here)
        return None if text is None else lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text))

    def definition(self, uri: str, position: lsp.Position) -> lsp.Location | None:
        """Where a word was declared."""
        from lsprotocol import types as lsp

        from flowrun.runners.editing.meaning import declared_at

        document, line, column = self._place(uri, position)
        place = declared_at(_path(document), document.source, line, column, self._analysis(uri))
        if place is None:
            return None
        return lsp.Location(uri, self._range(document, place.line - 1, place.column - 1, place.length))

    def _analysis(self, uri: str) -> Analysis:
        from flowrun.runners.editing.analysis import Analysis

        return self._analyses.get(uri) or Analysis()

    def _place(self, uri: str, position: lsp.Position) -> tuple[Any, int, int]:
        document = self._server.workspace.get_text_document(uri)
        place = document.position_codec.position_from_client_units(document.lines, position)
        return document, place.line, place.character

    def _problem(self, document: Any, problem: Diagnostic) -> lsp.Diagnostic:
        from lsprotocol import types as lsp

        from flowrun.errors import Severity

        place = problem.location
        where = (
            self._range(document, 0, 0, 1)
            if place is None
            else self._range(document, place.line - 1, place.column - 1, place.length)
        )
        return lsp.Diagnostic(
            where,
            problem.message + ("" if problem.hint is None else f"\n{problem.hint}"),
            severity=lsp.DiagnosticSeverity.Error
            if problem.severity is Severity.ERROR
            else lsp.DiagnosticSeverity.Warning,
            source="flowrun",
        )

    def _range(self, document: Any, line: int, column: int, length: int) -> lsp.Range:
        from lsprotocol import types as lsp

        codec, lines = document.position_codec, document.lines
        ends = [codec.position_to_client_units(lines, lsp.Position(line, at)) for at in (column, column + length)]
        return lsp.Range(*ends)


def _proposals(
    path: Path, text: str, line: int, column: int, analysis: Analysis, catalogs: CatalogWords
) -> list[Proposal]:
    from flowrun.runners.editing.sql_words import sql_proposals
    from flowrun.runners.editing.yaml_words import place_in, yaml_proposals

    if path.suffix.lower() not in SQL_SUFFIXES:
        place = place_in(path, text, line, column)
        return [] if place is None else list(yaml_proposals(place, analysis.tables, analysis.functions))
    offset = sum(len(part) + 1 for part in text.split("\n")[:line]) + column
    words = sql_proposals(
        text[:offset], text[offset:], analysis.tables, catalogs=catalogs, functions=analysis.functions
    )
    return list(words)


def _path(document: TextDocument) -> Path:
    """Of a text that was never saved: its name, with the ending for the language that the editor has chosen for it."""
    path = Path(document.path)
    return path if path.suffix or document.language_id is None else path.with_suffix(f".{document.language_id}")


def _streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for the protocol alone: what modules of functions print goes to standard error, and they read nothing."""
    taken = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return taken
