"""Turns Spark's exceptions into flowrun's: one message that says what went wrong, where, and what to do. Java's stacks stay in `__cause__`.

Spark raises three kinds of errors: exceptions with a condition (`DIVIDE_BY_ZERO`) and parameters, Python exceptions of its workers as the
text of their traceback, and plain Java exceptions, the real reason of which is one of their causes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from flowrun.core.record import record
from flowrun.errors import FlowrunError, InternalError, JobFailedError

_SHOWN = 200
_TRACEBACK = "Traceback (most recent call last):"
_FILE_CONDITIONS = ("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER")
_PLACE = re.compile(r"(source|sink|step|table|lookup) '")
"""The beginning of messages that say themselves where they come from."""
_REFUSALS = ("AnalysisException", "ParseException")
_MOST_CAUSES = 20


@record
class Fault:
    """What went wrong, as Spark reports it.

    Attributes:
        kind: the class of the exception, without its package.
        message: the message, without condition and stack.
        condition: Spark's name for the error; None: it has none.
        parameters: the parameters of the condition by name.
        fragment: the expression that failed, as Spark SQL; None: it is not known.
    """

    kind: str
    message: str
    condition: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    fragment: str | None = None


@record
class Explanation:
    """The message and the hint of flowrun for a fault."""

    message: str
    hint: str | None = None


def is_of_spark(error: BaseException) -> bool:
    """Whether an error comes from PySpark or from its bridge to Java."""
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def job_failure(error: BaseException, where: str) -> FlowrunError:
    """The error that users see for an error of Spark; `where` says what was being done, such as `sink 'out'`."""
    fault = _telling_fault(error)
    explained = explain_fault(fault)
    refused = fault.kind in _REFUSALS and _condition(fault) not in _CONDITIONS and _TRACEBACK not in fault.message
    if refused:
        return InternalError(
            f"{where}: Spark refuses what flowrun made of it: {explained.message}",
            hint="please report it with the pipeline; --mode streaming does not need Spark",
        )
    is_placed = _PLACE.match(explained.message) is not None
    return JobFailedError(explained.message if is_placed else f"{where}: {explained.message}", hint=explained.hint)


def first_line(error: BaseException) -> str:
    """An exception of Spark in one line."""
    return _short((_telling_fault(error).message or type(error).__name__).splitlines()[0])


def explain_fault(fault: Fault) -> Explanation:
    """A fault in flowrun's words, or, if flowrun has none for it, in Spark's without useless parts.

    >>> explain_fault(Fault("ArithmeticException", "…", "DIVIDE_BY_ZERO", {}, "`a` / `b`")).message
    'division by zero, in a / b'
    """
    if _TRACEBACK in fault.message:
        return _python_failure(fault.message)
    explain = _CONDITIONS.get(_condition(fault)) or _KINDS.get(fault.kind)
    if explain is not None:
        return explain(fault)
    for marker, explanation in _MARKERS:
        if marker in fault.message:
            return replace(explanation, message=explanation.message.format(_short(fault.message)))
    return Explanation(_located(_short(fault.message) or fault.kind, fault))


def _located(message: str, fault: Fault) -> str:
    if not fault.fragment:
        return message
    return f"{message}, in {_short(fault.fragment.replace('`', ''))}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


# --- what Spark says --------------------------------------------------------------------------------------------------------------


def _telling_fault(error: BaseException) -> Fault:
    """The most useful fault: a Python traceback, a file that cannot be read, the innermost one with a condition, or else the first."""
    faults = list(_faults(error))
    for fault in faults:
        if _TRACEBACK in fault.message:
            return fault
    for fault in faults:
        if _condition(fault) in _FILE_CONDITIONS and faults[-1].message:
            return replace(fault, parameters={**fault.parameters, "cause": faults[-1].message})
    named = [f for f in faults if f.condition is not None]
    marked = [f for f in faults if any(marker in f.message for marker, _ in _MARKERS)]
    return (named or marked or faults)[-1]


def _faults(error: BaseException) -> Iterator[Fault]:
    """The fault of an error and those of its causes, the outermost first; there is at least one."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    condition = _asked(error, "getCondition")
    if condition is not None or java is None:
        yield Fault(
            type(error).__name__,
            _cleaned(_asked(error, "getMessage") or str(error)),
            condition,
            _asked(error, "getMessageParameters") or {},
            _fragment(error),
        )
        java = None if java is None else java.getCause()
    for _ in range(_MOST_CAUSES):
        if java is None:
            return
        yield _java_fault(java)
        java = java.getCause()


def _condition(fault: Fault) -> str:
    """The main part of a condition that has parts."""
    return (fault.condition or "").partition(".")[0]


def _java_fault(java: Any) -> Fault:
    """The fault of a Java exception; if its text contains that of another exception, the fault of that one."""
    text = str(java.getMessage() or "")
    kind = str(java.getClass().getSimpleName())
    inner = re.search(
        r"(?:most recent failure|ExecutorLostFailure)[^\n]*?: (?:[\w.$]+\.)(\w+(?:Exception|Error)): (.*)", text
    )
    if inner is not None:
        kind, text = inner[1], inner[2]
    found = re.match(r"\[(?P<condition>[A-Z0-9_.]+)\]", text)
    return Fault(kind, _cleaned(text), None if found is None else found["condition"])


def _asked(error: BaseException, method: str) -> Any:
    ask = getattr(error, method, None)
    return None if ask is None else ask()


def _fragment(error: BaseException) -> str | None:
    contexts = _asked(error, "getQueryContext") or ()
    return next((c.fragment() for c in contexts if c.fragment()), None)


def _cleaned(message: str) -> str:
    """A message without its condition, its SQL state and advice that does not apply to flowrun."""
    message = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", message.strip())
    message = re.sub(r"\s*SQLSTATE: \w+", "", message)
    message = re.sub(
        r'\s*If necessary set "?spark\.[^.]*(?:\.[^." ]+)*"? to "?\w+"? to bypass this error\.?', "", message
    )
    for end in ("\n\nJVM stacktrace:", "\n== SQL", "\n== DataFrame", "; line "):
        message = message.partition(end)[0]
    return message.strip()


# --- Python -----------------------------------------------------------------------------------------------------------------------

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$', re.MULTILINE)


def _python_failure(message: str) -> Explanation:
    """An explanation of an error in a worker: an error of flowrun as it is, an error of a user's function with its place."""
    traceback = message[message.rindex(_TRACEBACK) :]
    lines = traceback.splitlines()
    start = next((i for i, line in enumerate(lines[1:], 1) if line and not line.startswith(" ")), len(lines) - 1)
    kind, _, first = lines[start].partition(": ")
    text = "\n".join([first, *lines[start + 1 :]]).strip()
    if kind.startswith("flowrun."):
        said, _, hint = text.partition("\n  hint: ")
        return Explanation(said, hint or None)
    name = kind.rpartition(".")[2]
    frames = list(_FRAME.finditer(traceback))
    place = f" ({frames[-1]['file']}:{frames[-1]['line']}, in {frames[-1]['function']})" if frames else ""
    return Explanation(f"{name}: {_short(text)}{place}" if text else f"{name}{place}")


# --- in flowrun's words -----------------------------------------------------------------------------------------------------------


def _bare(name: str | None) -> str:
    return (name or "").strip('"')


def _value(text: str | None) -> str:
    """A value in the spelling of Spark SQL, but numbers without the letters of their type."""
    return re.sub(r"^(-?[\d.]+)(L|S|Y|BD|D|F)$", r"\1", text or "")


def _divide_by_zero(fault: Fault) -> Explanation:
    return Explanation(_located("division by zero", fault), "leave such rows out, or divide by NULLIF(x, 0)")


def _overflow(fault: Fault) -> Explanation:
    return Explanation(_located("the result does not fit into its type", fault), "cast the operands to a wider type")


def _bad_cast(fault: Fault) -> Explanation:
    value, target = _value(fault.parameters.get("expression")), _bare(fault.parameters.get("targetType"))
    message = f"{value} is no {target}" if value and target else _short(fault.message)
    return Explanation(_located(message, fault), "TRY_CAST gives NULL for such values")


def _cast_overflow(fault: Fault) -> Explanation:
    value, target = _value(fault.parameters.get("value")), _bare(fault.parameters.get("targetType"))
    message = f"{value} does not fit into {target}" if value and target else "a value does not fit into its type"
    return Explanation(_located(message, fault), "cast to a wider type, or TRY_CAST, which gives NULL for such values")


def _no_file(fault: Fault) -> Explanation:
    return Explanation(f"there is no file or folder {_local(fault.parameters.get('path', ''))}")


def _unreadable(fault: Fault) -> Explanation:
    path = fault.parameters.get("path") or next(iter(re.findall(r"file \"?(\S+?)\"?\.?(?:\s|$)", fault.message)), "")
    cause = _short(_cleaned(fault.parameters.get("cause", ""))) or "it is damaged, or has other columns than declared"
    return Explanation(f"cannot read {_local(path.rstrip('.'))}: {cause}")


def _lost_memory(_fault: Fault) -> Explanation:
    return Explanation(
        "Spark ran out of memory", "give it more: --conf spark.driver.memory=8g, or run on more machines"
    )


def _own_words(fault: Fault) -> Explanation:
    return Explanation(fault.parameters.get("errorMessage") or fault.message)


def _local(path: str) -> str:
    return re.sub(r"^file:/+", "/", path)


_CONDITIONS: Mapping[str, Callable[[Fault], Explanation]] = {
    "DIVIDE_BY_ZERO": _divide_by_zero,
    "REMAINDER_BY_ZERO": _divide_by_zero,
    "INTERVAL_DIVIDED_BY_ZERO": _divide_by_zero,
    "ARITHMETIC_OVERFLOW": _overflow,
    "BINARY_ARITHMETIC_OVERFLOW": _overflow,
    "INTERVAL_ARITHMETIC_OVERFLOW": _overflow,
    "NUMERIC_VALUE_OUT_OF_RANGE": _overflow,
    "DATETIME_OVERFLOW": _overflow,
    "CAST_INVALID_INPUT": _bad_cast,
    "CAST_OVERFLOW": _cast_overflow,
    "PATH_NOT_FOUND": _no_file,
    "FAILED_READ_FILE": _unreadable,
    "CANNOT_READ_FILE_FOOTER": _unreadable,
    "USER_RAISED_EXCEPTION": _own_words,
    "UNABLE_TO_ACQUIRE_MEMORY": _lost_memory,
}
_KINDS: Mapping[str, Callable[[Fault], Explanation]] = {
    "OutOfMemoryError": _lost_memory,
    "SparkOutOfMemoryError": _lost_memory,
}
_MARKERS = (
    ("OutOfMemoryError", Explanation("Spark ran out of memory", "give it more: --conf spark.driver.memory=8g")),
    (
        "Python worker exited unexpectedly",
        Explanation(
            "a Python worker ended without a word: it was killed, or a native library crashed",
            "is there memory enough? fewer tasks at a time (--spark-master local[1]) need less",
        ),
    ),
    (
        "ExecutorLostFailure",
        Explanation("an executor was lost: {}", "executors need more memory, or the machine lost its connection"),
    ),
    (
        "Cannot run program",
        Explanation("{}", "Spark needs it on this machine, in PATH"),
    ),
    (
        "No space left on device",
        Explanation("the disk is full: {}", "spark.local.dir says where Spark keeps its files"),
    ),
)
