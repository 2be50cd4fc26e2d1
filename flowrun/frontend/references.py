"""Values of `${NAME}`, `${NAME:-default}` and `${secret:…}` in users' texts, whatever language the text is in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from flowrun.core.record import record
from flowrun.errors import Location, did_you_mean, near_matches
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.masking import learn_secret

REFERENCE = re.compile(r"\$(?=\$\{)|\$\{([^}]*)(\}?)")
"""A reference: group 1 is what stands in the braces, group 2 the closing one; without groups the `$` that escapes a `${`."""
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_SECRET = "secret:"
_SECRET_SOURCES = ("file", "env")
_FORMS = "write ${NAME}, ${NAME:-default}, ${secret:file:PATH} or ${secret:env:NAME}; $${ stands for a literal ${"


@record
class ReferenceValue:
    """What a reference stands for. `default`: it is the text after `:-`, as written there."""

    text: str
    secret: bool = False
    default: bool = False


def without_references(text: str) -> str:
    """A text that stands for itself where references are filled in.

    >>> without_references("${HOME} and $5")
    '$${HOME} and $5'
    """
    return text.replace("${", "$${")


SharedVariable: TypeAlias = Callable[[Diagnostics], ReferenceValue | None]
"""Gives the value of a variable of the project; None: it has none, which is reported."""


@dataclass(slots=True)
class References:
    """Where values come from: `--var`, then the variables of the project, then the environment; secret files are relative to `folder`.

    `used` collects the names of variables that the text mentions.
    """

    variables: Mapping[str, str]
    environment: Mapping[str, str]
    folder: Path
    shared: Mapping[str, SharedVariable] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def value(self, match: re.Match[str], at: Location, diagnostics: Diagnostics) -> ReferenceValue | None:
        """The value of a match of `REFERENCE` that has groups; None if there is none, which is reported. Secrets are masked from now on."""
        inner = match[1]
        if not match[2]:
            diagnostics.error("'${' without '}'", at, hint=_FORMS)
            return None
        if inner.startswith(_SECRET):
            secret = self._secret(inner.removeprefix(_SECRET), at, diagnostics)
            if secret is None:
                return None
            diagnostics.add_secret(secret)
            learn_secret(secret)
            return ReferenceValue(secret, secret=True)
        form = _VARIABLE.fullmatch(inner)
        if form is None:
            diagnostics.error(f"'${{{inner}}}' names no variable", at, hint=_FORMS)
            return None
        name, default = form[1], form[2]
        self.used.add(name)
        if name in self.shared and name not in self.variables:
            shared = self.shared[name](diagnostics)
            empty = default is not None and shared is not None and not shared.text
            return ReferenceValue(default or "", default=True) if empty else shared
        value = self.variables.get(name, self.environment.get(name))
        if default is not None and not value:
            return ReferenceValue(default, default=True)
        if value is None:
            close = near_matches(name, [*self.variables, *self.shared, *self.environment])
            hint = did_you_mean(name, close) if close else f"give it with --var {name}=…, or write ${{{name}:-default}}"
            diagnostics.error(f"the variable '{name}' is not set", at, hint=hint)
            return None
        return ReferenceValue(value)

    def _secret(self, reference: str, at: Location, diagnostics: Diagnostics) -> str | None:
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
        if "\0" in name:
            diagnostics.error(f"the secret file's path '{name}' has a NUL character, which no path can have", at)
            return None
        try:
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            diagnostics.error(f"cannot read the secret file '{path}': {error.strerror}", at)
        except UnicodeDecodeError:
            diagnostics.error(f"the secret file '{path}' is not UTF-8 text", at)
        return None

    def warn_unused(self, what: str, diagnostics: Diagnostics) -> None:
        """Warn of values given with `--var` that the text never mentions; `what` is the text, e.g. `the pipeline`."""
        for name in self.variables:
            if name not in self.used:
                close = near_matches(name, self.used)
                hint = f"did you mean '{close[0]}'?" if close else None
                diagnostics.warning(f"{unused_variable(name)} {what} does not use it", None, hint=hint)


def unused_variable(name: str) -> str:
    """How the warning begins that a variable of the command line is not used."""
    return f"the variable '{name}' is given but"
