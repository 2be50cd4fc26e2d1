"""Every error that flowrun raises on purpose, and the diagnostics that carry a place in the user's text.

The kinds are defined by contrast, by who has to act:

* `PipelineError`: the user's pipeline text, options or arguments are wrong; nothing was run or written (exit code 2).
* `UnsupportedPlanError`: the text is right, but flowrun cannot do it in this mode; says the nearest thing that works.
* `SetupError`: the machine lacks what the command needs (Java, a package, a server that answers); nothing was run or written (exit code 2).
* `ConnectorError`: an outside system or file misbehaved while the job ran; `retryable` says whether trying again may help.
* `DataError`: a record cannot be read, evaluated or written as declared; names the record.
* `StateError`: a checkpoint, savepoint or state table cannot be used.
* `ClusterError`: processes of a cluster cannot reach or trust each other, or lack what a job needs.
* `JobFailedError`: a running job failed; `__cause__` is the root cause.
* `ForeignError`: an error of another library or of users' code, as another process tells of it.
* `InternalError`: flowrun itself is wrong; please report it.

All can be pickled, with their places, hints and causes: a process tells another what went wrong.
"""

from __future__ import annotations

import difflib
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from flowrun.masking import MASK, masked, masked_line, named_secrets


class FlowrunError(Exception):
    """Base of all flowrun errors: `message` says where, what was expected and what was given; `hint` what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return masked(self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled with everything that it knows, and with its causes."""
        return _remade, (tuple(_parts(e) for e in _chain(self)),)

    def _render_traceback_(self) -> list[str]:
        """What notebooks show (IPython asks for it): the line of the cell, and the message; how flowrun came to it helps nobody."""
        return [*_calling_line(self), f"{type(self).__name__}: {self}"]


def _calling_line(error: BaseException) -> list[str]:
    """The line of the user's program that called flowrun, with its place; nothing if none did."""
    import os
    import traceback  # not needed without a failure

    own = os.path.dirname(__file__) + os.sep
    before: traceback.FrameSummary | None = None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(own):
            break
        before = frame
    return [] if before is None else [f"line {before.lineno}:  {before.line}"]


class ForeignError(FlowrunError):
    """An error that is not flowrun's own, as another process tells of it. `kind`: the name of its class there."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __str__(self) -> str:
        return masked(f"{self.kind}: {self.message}")


_Parts: TypeAlias = tuple[type[BaseException], tuple[object, ...], dict[str, object]]
"""An error without its causes: class, arguments, attributes."""


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes, the last cause last."""
    found = [error]
    while (cause := found[-1].__cause__) is not None and all(cause is not e for e in found):
        found.append(cause)
    return found


def _parts(error: BaseException) -> _Parts:
    if isinstance(error, FlowrunError):
        return type(error), error.args, error.__dict__
    arguments = tuple(error.__reduce__()[1])  # of an OSError the file's name, too, which is not in `args`
    parts = type(error), arguments, {k: v for k, v in error.__dict__.items() if k == "__notes__"}
    try:  # what users raise may be known to this process only, or hold what cannot be sent
        pickle.loads(pickle.dumps(parts))
    except Exception:
        told = ForeignError(str(error), type(error).__qualname__)
        return ForeignError, told.args, {**told.__dict__, **parts[2]}
    return parts


def _remade(chain: Sequence[_Parts]) -> BaseException:
    """An error and its causes from their parts. No constructor is called: what they take differs."""
    cause = None
    for kind, args, attributes in reversed(chain):
        error = kind.__new__(kind, *args)
        error.__dict__.update(attributes)
        error.__cause__ = cause
        cause = error
    assert cause is not None
    return cause


class Severity(Enum):
    """How bad a diagnostic is: errors stop the command, warnings do not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Location:
    """A range in one source text: 1-based line and column (in code points), and the length of the marked range."""

    file: str
    line: int
    column: int
    length: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem in the user's text: message, place, the line of text it points into, and the remedy."""

    message: str
    location: Location | None = None
    source_line: str | None = None
    hint: str | None = None
    severity: Severity = Severity.ERROR

    def render(self) -> str:
        """The problem as text: `file:line:col: error: message`, the line, a caret, and the hint."""
        place = f"{self.location}: " if self.location else ""
        message, hint = self._without_marked_secret()
        lines = [f"{place}{self.severity.value}: {message}"]
        if self.location is not None and self.source_line is not None:
            first = self.location.column - 1
            line, start, stop = masked_line(self.source_line.replace("\t", " "), first, first + self.location.length)
            shown, before = _stretch_around(line, start)
            width = max(1, min(stop - start, len(shown) - before))
            lines += [f"    {shown}", "    " + " " * before + "^" * width]
        if hint:
            lines.append(f"  hint: {hint}")
        return masked("\n".join(lines))

    def _without_marked_secret(self) -> tuple[str, str | None]:
        """Message and hint; if the problem is with a secret, without it."""
        message, hint, at, line = self.message, self.hint, self.location, self.source_line
        if at is None or line is None:
            return message, hint
        for first, last in named_secrets(line):
            is_marked = first < at.column - 1 + at.length and at.column - 1 < last
            if is_marked and last - first > 3:  # shorter texts stand in many words
                message = message.replace(line[first:last], MASK)
                hint = None if hint is None else hint.replace(line[first:last], MASK)
        return message, hint


_LONGEST_SHOWN = 200
"""Of a longer line of the user's text only the stretch around the marked place is shown."""


def _stretch_around(line: str, before: int) -> tuple[str, int]:
    """(the line, or of a very long one what stands around the place, with … where it is cut; code points before the mark)."""
    if len(line) <= _LONGEST_SHOWN:
        return line, before
    first = max(0, min(before - _LONGEST_SHOWN // 4, len(line) - _LONGEST_SHOWN))
    last = min(len(line), first + _LONGEST_SHOWN)
    if first:  # a shell has blanks in the place of statements before
        first = before - len(line[first:before].lstrip())
    head, tail = "… " if first else "", " …" if last < len(line) else ""
    return head + line[first:last] + tail, len(head) + before - first


class PipelineError(FlowrunError):
    """The pipeline text, its options or the command's arguments are wrong; carries every problem that was found."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(d.render() for d in self.diagnostics))

    @classmethod
    def of(cls, message: str, hint: str | None = None, location: Location | None = None) -> PipelineError:
        """The error that carries one problem, which may have no place in the text."""
        return cls([Diagnostic(message, location, hint=hint)])


class OptionError(FlowrunError):
    """One option of a connector, format or setting is wrong. `option` is its full key; front ends turn it into a diagnostic."""

    def __init__(self, option: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.option = option


class ExpressionError(FlowrunError):
    """An expression does not parse or type-check. `offset` and `length` count code points in the expression's own text."""

    def __init__(self, message: str, *, offset: int = 0, length: int = 1, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.offset = offset
        self.length = length


class UnsupportedPlanError(FlowrunError):
    """The pipeline is valid but cannot be planned as asked; names the node and the nearest thing that works."""


class SetupError(FlowrunError):
    """What the command needs is not there: Java, a package, a server that answers. Nothing was run or written."""


class ConnectorError(FlowrunError):
    """An outside system or file failed.

    `retryable` says what to do about it:

    * True: the same call may succeed in a moment (a server that starts, a time-out). Lookups and sinks repeat it; then the job is
      restarted.
    * None, not said: the call is not repeated, but the job is restarted, as its restart strategy has it.
    * False: nothing changes until somebody changes something (a wrong password, a table that is not there, a right that is missing).
      The job fails at once, whatever its restart strategy.
    """

    def __init__(self, message: str, *, retryable: bool | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retryable = retryable


class DataError(FlowrunError):
    """A record cannot be read, evaluated or written as declared. `row` is its 0-based index in the batch at hand, if known."""

    def __init__(self, message: str, *, row: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.row = row


class StateError(FlowrunError):
    """A checkpoint, savepoint or state table is missing, damaged or does not fit the pipeline."""


class PartitionLostError(FlowrunError):
    """Rows of an exchange cannot be read any more: its producer, subtask `subtask` of data set `data_set_id`, has to make them again.

    `others` are further subtasks of the same data set of which this was noticed at the same time: their numbers, with spaces between them.
    """

    def __init__(
        self, message: str, *, data_set_id: str, subtask: int, others: str = "", hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.data_set_id = data_set_id
        self.subtask = subtask
        self.others = others

    @property
    def subtasks(self) -> tuple[int, ...]:
        """All of them."""
        return (self.subtask, *map(int, self.others.split()))


class ClusterError(FlowrunError):
    """Processes of a cluster cannot reach, trust or understand each other."""


class RefusedError(ClusterError):
    """Two processes cannot work together, now or later: another secret, version or form of a job, or no flowrun at all."""


class RpcError(ClusterError):
    """A value cannot be sent to another process, or what another process sent is no value of the type that was expected."""


class ConnectionOverError(ClusterError):
    """A call was made on a connection that is over."""


class FencingError(ClusterError):
    """A call came from who does not lead any more, or for who does not lead here."""


class NoResourceAvailableError(ClusterError):
    """A job needs more slots than there are, or did not get them in time."""


class NeverEnoughSlotsError(NoResourceAvailableError):
    """A job needs more slots than there are, and no more are expected: a restart is no help."""


class JobFailedError(FlowrunError):
    """A job failed while running. `operator` and `subtask` name where; `__cause__` holds the root cause."""

    def __init__(
        self, message: str, *, operator: str | None = None, subtask: int | None = None, hint: str | None = None
    ):
        super().__init__(message, hint=hint)
        self.operator = operator
        self.subtask = subtask


class JobCancelledError(FlowrunError):
    """A job was cancelled before its end; raised out of blocking calls of its tasks."""


class InternalError(FlowrunError):
    """An invariant of flowrun itself does not hold. Please report it with the pipeline."""

    def _render_traceback_(self) -> list[str]:
        """All of it, for the report."""
        import traceback

        return traceback.format_exception(self)


def is_from_outside(error: BaseException) -> bool:
    """Whether the outside world is to blame (files, networks, services, memory), itself or as the cause of the error: trying again may
    help, and no row is at fault.

    >>> is_from_outside(TimeoutError()), is_from_outside(ValueError())
    (True, False)
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, OSError | MemoryError | ConnectorError | StateError | ClusterError):
            return True
        seen.add(id(current))
        current = current.__cause__
    return False


def near_matches(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The known names that look most like `name`, best first; case is ignored.

    >>> near_matches("Amout", ["amount", "user_id", "account"])
    ['amount', 'account']
    """
    by_folded = {k.casefold(): k for k in known}
    found = difflib.get_close_matches(name.casefold(), list(by_folded), n=limit, cutoff=0.6)
    return [by_folded[f] for f in found]


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint for an unknown name: near matches if there are any, else the (short) list of what is known."""
    choices = list(known)
    close = near_matches(name, choices)
    if close:
        return "did you mean " + " or ".join(f"'{c}'" for c in close) + "?"
    if choices and len(choices) <= 24:
        return "known: " + ", ".join(sorted(choices))
    return None
