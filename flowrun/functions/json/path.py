"""JSON paths as Flink reads them: `[lax|strict] $.a['b c'][0][*]..d[?(@.x > 1)]`.

Flink evaluates paths with the Jayway JsonPath library; a path without `lax` or `strict` is strict. Strict, a missing member is an
error; lax, it is empty. A path with a wildcard, slice, union, filter or `..` is indefinite: its value is the list of all matches.
Functions (`length()`) and filters with `&&`, `||` or regular expressions are refused.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from flowrun.core.record import record

MISSING = object()
"""What a path gives where it leads nowhere."""

_MODE = re.compile(r"\s*(strict|lax)\s+(.+)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"[^\s.\[\]()'\",?@*]+")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_FILTER = re.compile(
    r"\?\(\s*@((?:\.[^\s.\[\]()'\",=<>!]+|\['[^']*'\])*)\s*"
    r"(?:(==|!=|<=|>=|<|>)\s*('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)\s*)?\)"
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class JsonPathError(ValueError):
    """The text is not a JSON path, or uses a part of the language that is not supported."""


@record
class Filter:
    """`[?(@.steps op constant)]`; without an operator it asks whether the member exists."""

    steps: tuple[str, ...]
    comparison: str | None
    constant: Any

    def __call__(self, value: Any) -> bool:
        found = _follow(self.steps, value)
        if self.comparison is None or found is MISSING:
            return found is not MISSING and self.comparison is None
        same_kind = type(found) is type(self.constant) or (_is_number(found) and _is_number(self.constant))
        if not same_kind:
            return self.comparison == "!="
        return bool(_COMPARE[self.comparison](found, self.constant))


@record
class Many:
    """A step that may match several values: names, indexes, a slice, a filter, or everything; `deep` looks at all descendants."""

    keys: tuple[str | int, ...] | None = None
    slice: tuple[int | None, int | None] | None = None
    filter: Filter | None = None
    deep: bool = False


Step = str | int | Many


@record
class JsonPath:
    """A compiled path: strict or lax, and its steps; immutable and thread-safe."""

    strict: bool
    steps: tuple[Step, ...]
    definite: bool

    def find(self, document: Any) -> Any:
        """The value at the path (for an indefinite path the list of matches), or `MISSING`."""
        if self.definite:
            return _follow(self.steps, document)  # type: ignore[arg-type] # definite paths hold only names and indexes
        values = [document]
        for place, step in enumerate(self.steps):
            values = [found for value in values for found in _matches(step, value)]
            still_definite = all(not isinstance(s, Many) for s in self.steps[: place + 1])
            if not values and still_definite:
                return MISSING
        return values


@lru_cache(maxsize=1024)
def compile_path(text: str) -> JsonPath:
    """A compiled JSON path. Cached; thread-safe.

    Raises:
        JsonPathError: says what is wrong and where.

    >>> compile_path("$.a[1]").find({"a": [1, {"b": 2}]}), compile_path("lax $..b").find({"a": [1, {"b": 2}]})
    ({'b': 2}, [2])
    """
    match = _MODE.fullmatch(text)
    strict, body = (True, text) if match is None else (match[1].lower() == "strict", match[2])
    body = body.strip()
    if not body.startswith("$"):
        raise JsonPathError(f"JSON path '{text}' must start with $ (after an optional lax or strict)")
    steps: list[Step] = []
    at = 1
    while at < len(body):
        step, at = _step(text, body, at)
        steps.append(step)
    return JsonPath(strict, tuple(steps), not any(isinstance(s, Many) for s in steps))


def path_problem(path: object) -> str | None:
    """What is wrong with a constant path, or None; the check of JSON path parameters.

    >>> path_problem("$.a"), path_problem("a.b")
    (None, "JSON path 'a.b' must start with $ (after an optional lax or strict)")
    """
    if path is None:
        return None
    try:
        compile_path(str(path))
    except JsonPathError as error:
        return str(error)
    return None


def _step(text: str, body: str, at: int) -> tuple[Step, int]:
    deep = body.startswith("..", at)
    if deep:
        at += 2
    elif body[at] == ".":
        at += 1
    elif body[at] != "[":
        raise JsonPathError(f"JSON path '{text}': expected '.' or '[' at '{body[at:]}'")
    if body.startswith("[", at):
        step, at = _bracket(text, body, at + 1)
    elif body.startswith("*", at):
        step, at = Many(), at + 1
    else:
        name = _NAME.match(body, at)
        if name is None:
            raise JsonPathError(f"JSON path '{text}': a member name is missing after '{body[:at]}'")
        if body.startswith("(", name.end()):
            raise JsonPathError(f"JSON path '{text}': the function {name[0]}() is not supported")
        step, at = name[0], name.end()
    if deep:
        step = Many(step.keys, step.slice, step.filter, True) if isinstance(step, Many) else Many((step,), deep=True)
    return step, at


def _bracket(text: str, body: str, at: int) -> tuple[Step, int]:
    if (found := _FILTER.match(body, at)) is not None:
        step: Step = Many(filter=_filter(found))
        at = found.end()
    elif body.startswith("?", at):
        raise JsonPathError(f"JSON path '{text}': only filters like [?(@.name == 'x')] are supported")
    elif body.startswith("*", at):
        step, at = Many(), at + 1
    elif (found := re.compile(r"\s*(-?\d+)?\s*:\s*(-?\d+)?\s*").match(body, at)) is not None:
        step = Many(slice=tuple(None if g is None else int(g) for g in found.groups()))  # type: ignore[arg-type]
        at = found.end()
    else:
        keys: list[str | int] = []
        while True:
            key, at = _key(text, body, at)
            keys.append(key)
            if not body.startswith(",", at):
                break
            at += 1
        step = keys[0] if len(keys) == 1 else Many(tuple(keys))
    if not body.startswith("]", at):
        raise JsonPathError(f"JSON path '{text}': ']' is missing at '{body[at:]}'")
    return step, at + 1


def _key(text: str, body: str, at: int) -> tuple[str | int, int]:
    spaces = re.compile(r"\s*")
    at = spaces.match(body, at).end()  # type: ignore[union-attr] # an empty match is a match
    key: str | int
    if (quoted := _QUOTED.match(body, at)) is not None:
        key, at = re.sub(r"\\(.)", r"\1", quoted[1] if quoted[1] is not None else quoted[2]), quoted.end()
    elif (number := re.compile(r"-?\d+").match(body, at)) is not None:
        key, at = int(number[0]), number.end()
    else:
        raise JsonPathError(f"JSON path '{text}': expected a quoted name, a number or * at '{body[at:]}'")
    return key, spaces.match(body, at).end()  # type: ignore[union-attr]


def _filter(match: re.Match[str]) -> Filter:
    steps = tuple(a or b for a, b in re.findall(r"\.([^.\[]+)|\['([^']*)'\]", match[1]))
    if match[2] is None:
        return Filter(steps, None, None)
    literal = match[3]
    constants: dict[str, Any] = {"true": True, "false": False, "null": None}
    if literal in constants:
        constant = constants[literal]
    elif literal[0] in "'\"":
        constant = re.sub(r"\\(.)", r"\1", literal[1:-1])
    else:
        constant = float(literal)
    return Filter(steps, match[2], constant)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _follow(steps: tuple[str | int, ...], value: Any) -> Any:
    for step in steps:
        if type(step) is str:
            if type(value) is not dict or step not in value:
                return MISSING
            value = value[step]
        else:
            assert isinstance(step, int)
            if type(value) is not list or not -len(value) <= step < len(value):
                return MISSING
            value = value[step]
    return value


def _matches(step: Step, value: Any) -> Iterator[Any]:
    if not isinstance(step, Many):
        found = _follow((step,), value)
        if found is not MISSING:
            yield found
        return
    for candidate in _descendants(value) if step.deep else (value,):
        if step.keys is not None:
            yield from (f for k in step.keys if (f := _follow((k,), candidate)) is not MISSING)
        elif step.slice is not None:
            if type(candidate) is list:
                yield from candidate[step.slice[0] : step.slice[1]]
        elif step.filter is not None:
            among = candidate if type(candidate) is list else (candidate,)
            yield from filter(step.filter, among)
        elif type(candidate) is dict:
            yield from candidate.values()
        elif type(candidate) is list:
            yield from candidate


def _descendants(value: Any) -> Iterator[Any]:
    yield value
    children = value.values() if type(value) is dict else value if type(value) is list else ()
    for child in children:
        yield from _descendants(child)
