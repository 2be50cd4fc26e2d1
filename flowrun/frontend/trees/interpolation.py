"""Fills `${NAME}`, `${NAME:-default}` and `${secret:…}` into scalar values of a parsed document.

Works on the tree, so comments and keys are never touched and a value can never change the document's structure.
"""

from __future__ import annotations

from dataclasses import replace

from flowrun.core.record import record
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import REFERENCE, References
from flowrun.frontend.trees.nodes import Piece, YamlEntry, YamlMapping, YamlNode, YamlScalar, YamlSequence


@record
class Interpolation:
    """Fills the references of a document."""

    references: References

    def apply(self, node: YamlNode, diagnostics: Diagnostics) -> YamlNode:
        """The tree with every reference replaced; undefined variables and unreadable secrets are reported."""
        return self._rewrite(node, diagnostics, {})

    def _rewrite(self, node: YamlNode, diagnostics: Diagnostics, done: dict[int, YamlNode]) -> YamlNode:
        known = done.get(id(node))
        if known is None:
            known = done[id(node)] = self._rebuild(node, diagnostics, done)  # aliased nodes stay one node
        return known

    def _rebuild(self, node: YamlNode, diagnostics: Diagnostics, done: dict[int, YamlNode]) -> YamlNode:
        match node:
            case YamlScalar():
                return self._fill(node, diagnostics) if "${" in node.text and not node.pieces else node
            case YamlSequence():
                return replace(node, items=tuple(self._rewrite(i, diagnostics, done) for i in node.items))
            case YamlMapping():
                entries = (YamlEntry(e.key, self._rewrite(e.value, diagnostics, done)) for e in node.entries)
                return replace(node, entries=tuple(entries))
            case _:
                return node

    def _fill(self, scalar: YamlScalar, diagnostics: Diagnostics) -> YamlScalar:
        written = scalar.written
        text: list[str] = []
        pieces: list[Piece] = []
        size = position = 0
        secret = unresolved = False
        for match in REFERENCE.finditer(written):
            if match.start() < position:
                continue  # the `${` after an escaping `$`
            before = written[position : match.start()]
            if match[1] is None:  # `$${`
                value, position = "${", match.end() + 2
            else:
                at = scalar.locate(
                    match.start(), match.end() - match.start()
                )  # not filled yet: text is what was written
                found, position = self.references.value(match, at, diagnostics), match.end()
                value, unresolved = found.text if found else "", unresolved or found is None
                secret = secret or (found is not None and found.secret)
            text += (before, value)
            size += len(before)
            pieces.append(Piece(size, len(value), match.start(), position))
            size += len(value)
        filled = "".join((*text, written[position:]))
        return replace(scalar, text=filled, pieces=tuple(pieces), secret=secret, unresolved=unresolved)
