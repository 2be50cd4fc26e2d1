"""Errors as values: what another process is told of an exception, and the exception that it makes of that.

flowrun's own errors come back as themselves. Others come back as a stand-in that has the name and the text of the original and is an
instance of the same built-in class, so that whoever handles it decides as it would have in the first process. Texts leave a process
without its secrets, and bounded.
"""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Mapping
from dataclasses import field, replace
from functools import lru_cache

from flowrun import errors
from flowrun.core.record import record
from flowrun.errors import Diagnostic, FlowrunError, ForeignError, PipelineError
from flowrun.masking import masked

LONGEST_TEXT = 128 * 1024
"""Code points of a message or traceback; of longer ones the middle is left out."""

LONGEST_CHAIN = 32
"""Causes of causes that are told."""

Fact = None | bool | int | float | str
"""What an error knows beside its message."""


@record
class ErrorLink:
    """One error without its causes.

    Attributes:
        kind: its class, with the module.
        base: name of the nearest class in `flowrun.errors`, or else of the nearest built-in one.
        message: its text, of flowrun's own errors without the hint.
        hint: what to do about it.
        facts: its other attributes, as far as they are plain, such as `retryable` and `operator`.
        diagnostics: of a `PipelineError`.
        notes: as `add_note` took them.
    """

    kind: str
    base: str
    message: str
    hint: str | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    notes: tuple[str, ...] = ()


@record
class ErrorValue:
    """An error with the causes that it came from, and where it was raised.

    Attributes:
        links: the error, then its cause, and so on.
        traceback: as Python prints it.
    """

    links: tuple[ErrorLink, ...]
    traceback: str


def error_to_value(error: BaseException) -> ErrorValue:
    """What another process is told of an error.

    >>> value = error_to_value(errors.ConnectorError("no answer", retryable=True, hint="wait"))
    >>> value.links[0].base, value.links[0].facts, value.links[0].hint
    ('ConnectorError', {'retryable': True}, 'wait')
    """
    chain, seen = [error], {id(error)}
    while (cause := chain[-1].__cause__) is not None and id(cause) not in seen and len(chain) < LONGEST_CHAIN:
        chain.append(cause)
        seen.add(id(cause))
    told = [text for e in chain if (text := told_traceback(e))]
    own = "".join(traceback.format_exception(error))
    return ErrorValue(tuple(map(_link, chain)), _text("\n".join([*told, own])))


def error_from_value(value: ErrorValue) -> BaseException:
    """The error that prints and is handled as the original, with its chain of causes.

    Raises:
        ValueError: the value is no error that a process of this release would tell.
    """
    if not value.links:
        raise ValueError("no error in it")
    cause: BaseException | None = None
    for link in reversed(value.links):
        error = _error(link)
        error.__cause__ = cause
        cause = error
    assert cause is not None
    cause.__dict__["told_traceback"] = value.traceback
    return cause


def told_traceback(error: BaseException) -> str:
    """Where an error was raised in another process, as Python prints it; empty if it was raised in this one."""
    text = error.__dict__.get("told_traceback", "")
    return text if isinstance(text, str) else ""


def _link(error: BaseException) -> ErrorLink:
    own = isinstance(error, FlowrunError)
    kinds = type(error).__mro__
    base = next((k for k in kinds if own and _is_flowruns(k)), None) or next(k for k in kinds if _is_plain_builtin(k))
    kind = error.kind if isinstance(error, ForeignError) else f"{type(error).__module__}.{type(error).__qualname__}"
    return ErrorLink(
        kind,
        base.__name__,
        _text(error.message if isinstance(error, FlowrunError) else _text_of(error)),
        _text(error.hint) if isinstance(error, FlowrunError) and error.hint is not None else None,
        _facts(error),
        tuple(map(_without_secrets, error.diagnostics)) if isinstance(error, PipelineError) else (),
        tuple(_text(str(note)) for note in getattr(error, "__notes__", ())),
    )


def _facts(error: BaseException) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for name, fact in error.__dict__.items():
        if name in _TOLD_APART or name.startswith("_"):
            continue
        if isinstance(fact, str):
            facts[name] = _text(fact)
        elif fact is None or isinstance(fact, bool | int | float):
            facts[name] = fact
    if isinstance(error, OSError) and error.errno is not None:
        facts["errno"] = error.errno
    return facts


def _without_secrets(diagnostic: Diagnostic) -> Diagnostic:
    line, hint = diagnostic.source_line, diagnostic.hint
    return replace(
        diagnostic,
        message=_text(diagnostic.message),
        source_line=None if line is None else _text(line),
        hint=None if hint is None else _text(hint),
    )


_TOLD_APART = frozenset({"message", "hint", "diagnostics", "told_traceback", "kind"})


def _is_flowruns(kind: type) -> bool:
    return getattr(errors, kind.__name__, None) is kind and issubclass(kind, FlowrunError)


def _is_plain_builtin(kind: type) -> bool:
    """Whether a class is a built-in exception that can be made without arguments: not a group."""
    return getattr(builtins, kind.__name__, None) is kind and not issubclass(kind, BaseExceptionGroup)


def _error(link: ErrorLink) -> BaseException:
    known = getattr(errors, link.base, None)
    error: BaseException
    if isinstance(known, type) and issubclass(known, FlowrunError):
        error = known.__new__(known, link.message)
        error.__dict__.update({**_checked(link.facts), "message": link.message, "hint": link.hint})
        if isinstance(error, PipelineError):
            error.diagnostics = link.diagnostics
        if isinstance(error, ForeignError):
            error.kind = link.kind
    else:
        stand_in = _stand_in(link.kind, link.base)
        error = stand_in.__new__(stand_in)
        error.args = (link.message,)
        facts = dict(_checked(link.facts))
        if isinstance(error, OSError):
            error.errno = facts.pop("errno", None)  # type: ignore[assignment]
        error.__dict__.update(facts)
    for note in link.notes:
        error.add_note(note)
    return error


def _checked(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    if any(not name.isidentifier() or name.startswith("_") or name in _TOLD_APART for name in facts):
        raise ValueError("an attribute of an error has an impossible name")
    return dict(facts)


@lru_cache(64)
def _stand_in(kind: str, base: str) -> type[BaseException]:
    """The class of the errors that stand for those of one class of another process; their text is their one argument."""
    known = getattr(builtins, base, None)
    if not (isinstance(known, type) and issubclass(known, BaseException) and _is_plain_builtin(known)):
        raise ValueError("an error of an unknown class")
    module, _, name = kind.rpartition(".")
    attributes = {
        "__module__": module,
        "__qualname__": name,
        "__doc__": f"Stands for a {name} of another process.",
        "__str__": lambda self: masked(self.args[0]),
    }
    return type(name, (known,), attributes)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:  # the code is the user's
        return f"(its text cannot be made: {type(failure).__name__})"


def _text(text: str) -> str:
    """A text without secrets, bounded, that every process can write."""
    text = masked(text).encode("utf-8", "backslashreplace").decode()
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are left out …\n{text[-half:]}"
