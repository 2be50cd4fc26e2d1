"""Rows that cannot be processed, in programs: which operators leave them out, and where the dead letters go.

As `flowrun.plan.row_errors` does for plans: what `on_error` says is given to the operators when the graph is made, checks are put before
sinks and keyed windows, and one file sink gets all dead letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from flowrun.api.operator import OperatorRecipe
from flowrun.api.source import Boundedness
from flowrun.core.constraints import SinkConstraints
from flowrun.core.row_errors import DEAD_LETTER_SCHEMA, FAIL, LetterOrigin, OnError, RowErrors, RowFault
from flowrun.core.semantics import NullKeys
from flowrun.errors import PipelineError
from flowrun.graph.transformation import (
    OneInputTransformation,
    PartitionTransformation,
    PhysicalTransformation,
    SideOutputTransformation,
    SinkTransformation,
    SourceTransformation,
    Transformation,
    TwoInputTransformation,
    UnionTransformation,
)
from flowrun.operators.factories import CalcFactory, SinkOperatorFactory, SourceOperatorFactory
from flowrun.operators.process.factories import CoProcessFunctionFactory
from flowrun.operators.row_failures import DEAD_LETTERS
from flowrun.operators.row_tests import SinkCheck
from flowrun.plan.nodes import TableReference
from flowrun.plan.tables import create_sink

_LETTERS = "dead letters"
_REQUIRED = ".required"
_LETTERS_PATH = "format.dead-letter.path"
_LETTERS_SINK = "format.dead-letter.sink"


def on_error_of(mode: OnError | str) -> OnError:
    """A mode by its value, too.

    Raises:
        PipelineError: there is no such mode.
    """
    try:
        return OnError(mode)
    except ValueError:
        raise PipelineError.of(f"on_error is fail, skip or dead-letter, not '{mode}'") from None


def leaves_rows_out(operator: PhysicalTransformation) -> bool:
    """Whether an operator can leave out rows that it cannot process."""
    factory = operator.factory
    return isinstance(operator, SinkTransformation) or _isolates(factory) or _refuses_keys(factory)


def routed(
    sinks: Sequence[SinkTransformation], default: OnError, dead_letters: str | None, pipeline: str
) -> list[SinkTransformation]:
    """The sinks of a job whose operators do with rows that they cannot process as they are told.

    Operators are changed in place; doing it again changes nothing more.

    Args:
        sinks: of the program.
        default: for operators that were told nothing.
        dead_letters: folder for dead letters; None: there is none.
        pipeline: the name of the program's job.

    Raises:
        PipelineError: rows are to become dead letters, but there is no folder for them.
    """
    letters: dict[str, list[PhysicalTransformation]] = {}
    found = list(_all(sinks))
    unbounded = any(
        isinstance(t, SourceTransformation) and t.source.boundedness is not Boundedness.BOUNDED for t in found
    )

    def collect(operator: PhysicalTransformation, folder: str | None) -> None:
        if folder is None:
            raise PipelineError.of(
                f"'{operator.name}' puts rows aside as dead letters, but there is no folder for them",
                "give StreamExecutionEnvironment(dead_letters=…) a folder",
            )
        letters.setdefault(folder, []).append(operator)

    for operator in found:
        if not isinstance(operator, PhysicalTransformation) or isinstance(operator, SinkTransformation):
            continue
        mode = operator.on_error or default
        if isinstance(operator, SourceTransformation) and isinstance(operator.factory, SourceOperatorFactory):
            folder = _own_letters(operator.source)
            if folder is not None:
                decoding = _row_errors(OnError.DEAD_LETTER, operator, pipeline)
                operator.factory = replace(operator.factory, decoding=decoding)
                collect(operator, folder)
            if folder is not None and mode is OnError.DEAD_LETTER and folder != dead_letters:
                raise PipelineError.of(
                    f"source '{operator.name}' has two folders for dead letters: {folder} and {dead_letters}",
                    f"give {_LETTERS_PATH} of the source the same folder",
                )
        if _isolates(operator.factory):
            factory: Any = operator.factory
            errors = FAIL if mode is OnError.FAIL else _row_errors(mode, operator, pipeline)
            operator.factory = replace(factory, errors=errors)
        for place in (operator, *_before_keys(operator, mode, pipeline)):
            if mode is not OnError.DEAD_LETTER or not _isolates(place.factory):
                continue
            if place not in letters.get(dead_letters or "", ()):  # its records are there already
                collect(place, dead_letters)
    written = []
    for sink in sinks:
        mode = sink.on_error or default
        check = None if mode is OnError.FAIL else _before_sink(sink, mode, pipeline)
        written.append(sink if check is None else replace(sink, input=check))
        if check is not None and mode is OnError.DEAD_LETTER:
            collect(check, dead_letters)
    return [*written, *(_letter_sink(path, operators, unbounded) for path, operators in sorted(letters.items()))]


def _all(sinks: Sequence[SinkTransformation]) -> Iterator[Transformation]:
    """Everything that sinks read, each once, inputs first."""
    done: set[int] = set()
    waiting: list[tuple[Transformation, bool]] = [(sink, False) for sink in reversed(sinks)]
    while waiting:
        one, is_known = waiting.pop()
        if is_known:
            yield one
        elif id(one) not in done:
            done.add(id(one))
            waiting.append((one, True))
            more = getattr(one, "feedback_edges", ())
            waiting += [(i, False) for i in reversed((*one.inputs, *more))]


def _isolates(factory: OperatorRecipe) -> bool:
    return isinstance(getattr(factory, "errors", None), RowErrors)


def _refuses_keys(factory: OperatorRecipe) -> bool:
    """Whether it fails on NULL in its keys; what is aggregated already was looked at before."""
    policy, partial = getattr(factory, "null_keys", None), getattr(factory, "partial_input", False)
    keys = getattr(factory, "keys", ())
    return policy is NullKeys.FAIL and not partial and bool(keys) and keys != (None, None)


def _own_letters(source: object) -> str | None:
    """The folder that the options of a source name for records that it cannot decode."""
    if getattr(source, "error_mode", None) is not OnError.DEAD_LETTER:
        return None
    options = getattr(source, "options")  # noqa: B009 - of sources that have an error mode
    if options.get(_LETTERS_SINK):
        raise PipelineError.of(
            f"a program has no sinks that '{_LETTERS_SINK}' could name", f"give the source a folder: {_LETTERS_PATH}"
        )
    return str(options.text(_LETTERS_PATH))


def _row_errors(mode: OnError, operator: PhysicalTransformation, pipeline: str) -> RowErrors:
    if not isinstance(operator, SourceTransformation):
        return RowErrors(mode, _place(operator), LetterOrigin(pipeline))
    name = operator.name.removeprefix("Source: ")
    return RowErrors(
        mode,
        _place(operator),
        LetterOrigin(pipeline, source=name, format=getattr(operator.source, "format_name", None)),
    )


def _place(operator: PhysicalTransformation) -> str:
    kind = {SourceTransformation: "source", SinkTransformation: "sink"}.get(type(operator), "step")
    return f"{kind} '{operator.name}'"


def _before_keys(operator: PhysicalTransformation, mode: OnError, pipeline: str) -> list[PhysicalTransformation]:
    """What leaves out rows with NULL in the keys of an operator, put before its exchanges where something has to."""
    if not _refuses_keys(operator.factory):
        return []
    keys: Any = getattr(operator.factory, "keys")  # noqa: B009 - see _refuses_keys
    match operator:
        case OneInputTransformation():
            sides: tuple[tuple[str, tuple[int, ...] | None], ...] = (("input", keys),)
        case TwoInputTransformation(factory=CoProcessFunctionFactory()):
            sides = (("left", keys[0]), ("right", keys[1]))
        case _:
            return []
    checks = [_before_side(operator, side, keys, mode, pipeline) for side, keys in sides if keys]
    return [check for check in checks if check is not None]


def _before_side(
    operator: PhysicalTransformation, side: str, keys: tuple[int, ...], mode: OnError, pipeline: str
) -> PhysicalTransformation | None:
    """The same for one input of the operator; None: nothing has to."""
    read: Transformation = getattr(operator, side)
    exchange = read if isinstance(read, PartitionTransformation) else None
    source = read if exchange is None else exchange.input
    known = source if isinstance(source, OneInputTransformation) and source.name == operator.name + _REQUIRED else None
    if mode is OnError.FAIL and known is None:
        return None
    errors = FAIL if mode is OnError.FAIL else _row_errors(mode, operator, pipeline)
    factory = CalcFactory(name=operator.name + _REQUIRED, errors=errors, required=keys, fault=RowFault.NULL_KEY)
    if known is not None:
        known.factory = factory
        return known
    check = OneInputTransformation(name=factory.name, schema=source.schema, factory=factory, input=source)
    setattr(operator, side, check if exchange is None else replace(exchange, input=check))
    return check


def _before_sink(sink: SinkTransformation, mode: OnError, pipeline: str) -> PhysicalTransformation | None:
    """What leaves out rows that a sink cannot write; None: it writes all."""
    required = tuple(i for i, field in enumerate(sink.schema) if not field.nullable)
    constraints = sink.factory.constraints if isinstance(sink.factory, SinkOperatorFactory) else SinkConstraints()
    writes = SinkCheck(sink.sink, constraints, _place(sink))
    refuses = writes.create() is not None
    if not required and not refuses:
        return None
    errors = _row_errors(mode, sink, pipeline)
    name = sink.name + _REQUIRED
    factory = CalcFactory(name=name, errors=errors, required=required, tests=(writes,) if refuses else ())
    return OneInputTransformation(
        name=name, schema=sink.input.schema, factory=factory, input=sink.input, parallelism=sink.parallelism
    )


def _letter_sink(path: str, operators: Sequence[PhysicalTransformation], unbounded: bool) -> SinkTransformation:
    sides: list[Transformation] = [
        SideOutputTransformation(name=_LETTERS, schema=DEAD_LETTER_SCHEMA, input=o, tag=DEAD_LETTERS) for o in operators
    ]
    joined = sides[0]
    if len(sides) > 1:
        joined = UnionTransformation(name=_LETTERS, schema=DEAD_LETTER_SCHEMA, members=tuple(sides))
    table = TableReference(_LETTERS, "filesystem", {"path": path, "sink.mode": "append"}, format="json")
    sink = create_sink(table, DEAD_LETTER_SCHEMA, unbounded)
    return SinkTransformation(
        name=f"Sink: {_LETTERS}",
        schema=DEAD_LETTER_SCHEMA,
        input=joined,
        factory=SinkOperatorFactory(sink, _LETTERS),
        sink=sink,
        parallelism=1,
        uid=f"{_LETTERS} in {path}",
    )
