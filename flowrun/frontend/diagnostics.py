"""Collects problems of one pipeline text, so that users see all of them at once."""

from __future__ import annotations

from flowrun.errors import Diagnostic, Location, PipelineError, Severity
from flowrun.frontend.source_text import SourceText
from flowrun.masking import MASK


class Diagnostics:
    """Problems found so far. Values of secrets are masked in everything that is added."""

    def __init__(self, *sources: SourceText) -> None:
        self._sources = {s.file: s for s in sources}
        self._secrets: list[str] = []
        self._found: list[Diagnostic] = []

    def add_source(self, source: SourceText) -> None:
        """Make the lines of another text available to messages."""
        self._sources.setdefault(source.file, source)

    def add_secret(self, value: str) -> None:
        """Never show `value` from now on."""
        if value and value not in self._secrets:
            self._secrets.append(value)
            self._secrets.sort(key=len, reverse=True)  # a secret that contains another is masked whole

    def error(self, message: str, at: Location | None, *, hint: str | None = None) -> None:
        """Add a problem that stops the command."""
        self._add(message, at, hint, Severity.ERROR)

    def errors_of(self, error: PipelineError) -> None:
        """Add what another reader found, which stops the command."""
        for found in error.diagnostics:
            self.error(found.message, found.location, hint=found.hint)

    def warning(self, message: str, at: Location | None, *, hint: str | None = None) -> None:
        """Add a problem that the user should know of."""
        self._add(message, at, hint, Severity.WARNING)

    def _add(self, message: str, at: Location | None, hint: str | None, severity: Severity) -> None:
        source = self._sources.get(at.file) if at is not None else None
        line = source.line(at.line) if source is not None and at is not None else None
        diagnostic = Diagnostic(self.mask(message), at, line, self.mask(hint) if hint else None, severity)
        if diagnostic not in self._found:  # an anchor read twice says the same thing twice
            self._found.append(diagnostic)

    def mask(self, text: str) -> str:
        """The text with the values of secrets replaced."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    @property
    def has_errors(self) -> bool:
        """Whether anything found so far stops the command."""
        return any(d.severity is Severity.ERROR for d in self._found)

    @property
    def found(self) -> tuple[Diagnostic, ...]:
        """Everything found, in the order of the text; problems without a place come first."""
        files = {name: i for i, name in enumerate(self._sources)}

        def order(diagnostic: Diagnostic) -> tuple[int, int, int]:
            at = diagnostic.location
            return (-1, 0, 0) if at is None else (files.get(at.file, len(files)), at.line, at.column)

        return tuple(sorted(self._found, key=order))

    def raise_if_errors(self) -> None:
        """Raise PipelineError with everything found if any of it is an error."""
        if self.has_errors:
            raise PipelineError(self.found)
