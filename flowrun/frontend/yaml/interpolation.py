"""Fills `${NAME}`, `${NAME:-default}` and `${secret:…}` into scalar values of a parsed document.

Works on the tree, so comments and keys are never touched and a value can never change the document's structure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from flowrun.errors import did_you_mean, near_matches
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.yaml.nodes import Piece, YamlEntry, YamlMapping, YamlNode, YamlScalar, YamlSequence

_REFERENCE = re.compile(r"\$(?=\$\{)|\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_SECRET = "secret:"
_SECRET_SOURCES = ("file", "env")
_FORMS = "write ${NAME}, ${NAME:-default}, ${secret:file:PATH} or ${secret:env:NAME}; $${ stands for a literal ${"


@dataclass(slots=True)
class Interpolation:
    """Where values come from: `--var` before the environment; secret files are relative to `folder`.

    `used` collects the names of variables that the document mentions.
    """

    variables: Mapping[str, str]
    environment: Mapping[str, str]
    folder: Path
    used: set[str] = field(default_factory=set)

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
                return self._fill(node, diagnostics) if "${" in node.text else node
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
        for match in _REFERENCE.finditer(written):
            if match.start() < position:
                continue  # the `${` after an escaping `$`
            before = written[position : match.start()]
            if match[1] is None:  # `$${`
                value, position = "${", match.end() + 2
            else:
                found, position = self._value(scalar, match, diagnostics), match.end()
                value, unresolved = found or "", unresolved or found is None
                if match[1].startswith(_SECRET):
                    secret = True
                    diagnostics.add_secret(value)
            text += (before, value)
            size += len(before)
            pieces.append(Piece(size, len(value), match.start(), position))
            size += len(value)
        filled = "".join((*text, written[position:]))
        return replace(scalar, text=filled, pieces=tuple(pieces), secret=secret, unresolved=unresolved)

    def _value(self, scalar: YamlScalar, match: re.Match[str], diagnostics: Diagnostics) -> str | None:
        at = scalar.locate(match.start(), match.end() - match.start())  # not filled yet: text is what was written
        inner = match[1]
        if not match[2]:
            diagnostics.error("'${' without '}'", at, hint=_FORMS)
            return None
        if inner.startswith(_SECRET):
            return self._secret(inner.removeprefix(_SECRET), scalar, match, diagnostics)
        form = _VARIABLE.fullmatch(inner)
        if form is None:
            diagnostics.error(f"'${{{inner}}}' names no variable", at, hint=_FORMS)
            return None
        name, default = form[1], form[2]
        self.used.add(name)
        value = self.variables.get(name, self.environment.get(name))
        if default is not None and not value:
            return default
        if value is None:
            close = near_matches(name, [*self.variables, *self.environment])
            hint = did_you_mean(name, close) if close else f"give it with --var {name}=…, or write ${{{name}:-default}}"
            diagnostics.error(f"the variable '{name}' is not set", at, hint=hint)
            return None
        return value

    def _secret(self, reference: str, scalar: YamlScalar, match: re.Match[str], diagnostics: Diagnostics) -> str | None:
        at = scalar.locate(match.start(), match.end() - match.start())
        origin, _, name = reference.partition(":")
        if origin not in _SECRET_SOURCES or not name:
            diagnostics.error(f"'${{secret:{reference}}}' names no secret", at, hint=_FORMS)
            return None
        if origin == "env":
            if name not in self.environment:
                diagnostics.error(f"the secret's environment variable '{name}' is not set", at)
                return None
            return self.environment[name]
        path = self.folder / name
        try:
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            diagnostics.error(f"cannot read the secret file '{path}': {error.strerror}", at)
        except UnicodeDecodeError:
            diagnostics.error(f"the secret file '{path}' is not UTF-8 text", at)
        return None


def unused_variables(interpolation: Interpolation) -> list[str]:
    """Names given with `--var` that the document never mentions."""
    return [name for name in interpolation.variables if name not in interpolation.used]
