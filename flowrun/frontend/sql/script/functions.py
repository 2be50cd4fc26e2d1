"""CREATE FUNCTION: users' Python functions, found and checked when the script is read, not when it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

from flowrun.api.accumulators import accumulator_form
from flowrun.api.annotations import AnnotationError, Form, columns_of_annotation, is_iterator, shown
from flowrun.api.process_function import KeyedProcessFunction, ProcessFunction
from flowrun.api.signatures import NamedAnnotation, Signature, signature_of
from flowrun.api.user_functions import Aggregate, Callee, FunctionDeclaration, declaration_of, overloaded
from flowrun.core.types import DataType, TypeRoot, row
from flowrun.errors import ExpressionError, PipelineError
from flowrun.frontend.sql.catalog import FunctionKind, Parameter, ProcessSignature, UserFunction
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.script.statements import CreateFunction
from flowrun.frontend.sql.spans import Span, error_at
from flowrun.operators.callable_functions import why_not_called
from flowrun.operators.function_loading import load_attribute
from flowrun.operators.function_scope import FunctionScope
from flowrun.operators.opened_functions import made_of_class
from flowrun.operators.user_functions import can_retract, made_aggregate
from flowrun.operators.user_values import check_forms

_KNOWN_JAVA = {"com.github.nexmark.flink.udf.CountChar": "flowrun.connectors.nexmark_functions:count_char"}
"""Java functions of published scripts that are built in."""
_KINDS = {
    Callee.SCALAR: FunctionKind.SCALAR,
    Callee.AGGREGATE: FunctionKind.AGGREGATE,
    Callee.TABLE: FunctionKind.TABLE,
    Callee.PROCESS: FunctionKind.PROCESS,
}
T = TypeVar("T")
_Signature: TypeAlias = tuple[tuple[DataType, ...] | None, DataType]
_AGGREGATE_METHODS = ("create_accumulator", "accumulate", "get_value")


def user_function(statement: CreateFunction, scope: FunctionScope) -> UserFunction:
    """The function that the statement names.

    Args:
        statement: CREATE FUNCTION.
        scope: where it may come from.

    Raises:
        ExpressionError: it comes from elsewhere, cannot be loaded, is in another language, or its types are not known; marks the
            place in the script.
    """
    reference = _reference(statement)
    try:
        built_in = statement.reference.strip() in _KNOWN_JAVA
        target = load_attribute(reference, scope.folders) if built_in else scope.load(reference)
    except PipelineError as error:
        found = error.diagnostics[0]
        raise error_at(found.message, statement.reference_span, found.hint) from error
    return _Reading(statement, reference, target, scope.folders).function()


def function_called(name: str, reference: str, scope: FunctionScope) -> UserFunction:
    """The function that `name: module:attribute` declares under `functions:` of a YAML document.

    Raises:
        ExpressionError: as `user_function`; its place means nothing.
    """
    return user_function(CreateFunction((Name(name, (0, 0)),), reference, (0, 0), "PYTHON", (0, 0)), scope)


def _reference(statement: CreateFunction) -> str:
    text = statement.reference.strip()
    if text in _KNOWN_JAVA:
        return _KNOWN_JAVA[text]
    if statement.language != "PYTHON":
        given = any(statement.language_span) and statement.language_span != statement.reference_span
        what = (
            f"functions in {statement.language} cannot be called"
            if given
            else "this is a function in Java, which cannot be called"
        )
        hint = f"write it in Python: CREATE FUNCTION {statement.name[-1].text} AS 'module.function' LANGUAGE PYTHON"
        raise error_at(what, statement.language_span, hint)
    if ":" in text:
        return text
    module, dot, name = text.rpartition(".")
    if not dot:
        hint = "with the module in my_functions.py beside the script: 'my_functions.clean'"
        raise error_at(f"'{text}' names no module", statement.reference_span, hint)
    return f"{module}:{name}"


class _Reading:
    """Finds kind and types of one function."""

    def __init__(self, statement: CreateFunction, reference: str, target: Any, search_path: tuple[str, ...]) -> None:
        self._statement = statement
        self._reference = reference
        self._target = target
        self._search_path = search_path
        self._span: Span = statement.reference_span

    def function(self) -> UserFunction:
        """The function as the catalog has it."""
        declared = declaration_of(self._target)
        if inspect.isclass(self._target) and issubclass(self._target, ProcessFunction):
            return self._process(self._target, declared)
        kind = self._kind() if declared is None else declared.kind
        declared = declared or FunctionDeclaration(kind, None, None, False, True)
        self._check_calls(kind)
        (arguments, result), *overloads = self._signatures(kind, declared)
        taken = self._taken(kind)
        wrong = self._annotated(lambda: check_forms(taken))
        if wrong is not None:
            raise self._error(wrong, "annotate all parameters as columns, or none of them")
        return UserFunction(
            name=self._statement.name[-1].text,
            kind=_KINDS[kind],
            reference=self._reference,
            arguments=arguments,
            result=result,
            vectorised=declared.vectorised or taken.is_vectorised,
            deterministic=declared.deterministic,
            search_path=self._search_path,
            retractable=kind is Callee.AGGREGATE and can_retract(self._aggregate),
            overloads=tuple((a, r) for a, r in overloads if a is not None),
            required=self._required(kind),
            accumulator=accumulator_form(self._aggregate) if kind is Callee.AGGREGATE else None,
        )

    def _check_calls(self, kind: Callee) -> None:
        """Raise for what could be found out only while it runs: that it cannot be made, or called with a value an argument."""
        if kind is Callee.AGGREGATE:
            methods = [getattr(self._aggregate, name) for name in _AGGREGATE_METHODS]
        else:
            methods = [self._called()[0]]
            if inspect.isclass(self._target):
                self._at_reference(lambda: made_of_class(self._target, self._reference))
        for method in methods:
            wrong = why_not_called(method, gives_rows=kind is Callee.TABLE)
            if wrong is not None:
                raise self._error(*wrong)

    def _signatures(self, kind: Callee, declared: FunctionDeclaration) -> list[_Signature]:
        """Types of arguments and result as each decorator has them, or as `typing.overload` does."""
        annotated = self._annotations(kind)
        found: list[_Signature] = []
        for declaration in (declared, *declared.others):
            for signature, given in annotated if declaration.arguments is None else annotated[:1]:
                result = declaration.result
                if result is None:
                    result = self._result(kind, given)
                elif kind is Callee.TABLE:
                    result = _as_columns(result)
                types = declaration.arguments
                if types is None:
                    types = self._annotated(signature.argument_types)
                found.append((types, result))
        if len(found) > 1 and any(arguments is None for arguments, _ in found):
            hint = f'@flowrun.{_decorator(kind)}(arguments=["STRING"], result="STRING"), once for each'
            raise self._error("it has several signatures, and the arguments of one are not known", hint)
        return found

    def _annotations(self, kind: Callee) -> list[tuple[Signature, NamedAnnotation]]:
        """(the parameters that take arguments, what is given) of each signature."""
        if kind is Callee.AGGREGATE:
            return [(signature_of(self._aggregate.accumulate, 1), signature_of(self._aggregate.get_value).result)]
        called, skip = self._called()
        found = [signature_of(f, skip) for f in overloaded(called)]
        return [(signature, signature.result) for signature in found]

    def _taken(self, kind: Callee) -> Signature:
        """The parameters of what is called when rows come."""
        if kind is Callee.AGGREGATE:
            return signature_of(self._aggregate.accumulate, 1)
        return signature_of(*self._called())

    def _result(self, kind: Callee, given: NamedAnnotation) -> DataType:
        """The type that an annotation says."""
        where = f" ({given.place})" if given.place else ""
        if kind is Callee.TABLE:
            columns = self._annotated(
                lambda: columns_of_annotation(given.annotation), f"the result is annotated {{}}{where}"
            )
            if columns is None:
                raise self._error(
                    f"the columns of its rows are not known{where}",
                    'annotate what it yields, -> Iterator[tuple[str, int]], or declare it: @flowrun.udtf(result="word STRING, size INT")',
                )
            return columns
        result = self._annotated(lambda: given.type)
        if result is None:
            said = "-> str" if given.form is Form.VALUE else f'-> Annotated[{shown(given.annotation)}, "BIGINT"]'
            hint = f'annotate it, {said}, or declare it: @flowrun.{_decorator(kind)}(result="STRING")'
            raise self._error(f"the type of its result is not known{where}", hint)
        return result

    def _annotated(self, look: Callable[[], T], text: str = "{}") -> T:
        """What looking at annotations gives.

        Raises:
            ExpressionError: one has no SQL type; `text` says of what, around its message.
        """
        try:
            return look()
        except AnnotationError as error:
            raise self._error(text.format(error), error.hint) from error

    def _required(self, kind: Callee) -> int | None:
        """How many arguments must be given: those without a default."""
        called, skip = (self._aggregate.accumulate, 1) if kind is Callee.AGGREGATE else self._called()
        try:
            parameters = list(inspect.signature(called).parameters.values())[skip:]
        except (TypeError, ValueError):  # built-in functions may have no signature
            return None
        return sum(p.default is p.empty for p in parameters if p.kind is not p.VAR_POSITIONAL)

    def _process(self, kind: type[ProcessFunction], declared: FunctionDeclaration | None) -> UserFunction:
        declared = declared or FunctionDeclaration(Callee.PROCESS, None, None, False, True)
        if declared.kind is not Callee.PROCESS:
            raise self._error(
                f"it is a process function, but declared as a {declared.kind.value} one",
                "write @flowrun.ptf",
            )
        result = declared.result or self._sent_columns(kind)
        timers = [n for n in ("on_timer", "on_timers") if hasattr(kind, n)]
        if declared.passes_columns and timers:
            raise self._error(
                f"{timers[0]} is not possible with pass_columns_through: a timer has no row whose columns could be passed",
                "leave pass_columns_through out, and keep in state what is wanted of the row",
            )
        signature = ProcessSignature(
            declared.table, issubclass(kind, KeyedProcessFunction), declared.passes_columns, self._parameters(kind)
        )
        return UserFunction(
            name=self._statement.name[-1].text,
            kind=FunctionKind.PROCESS,
            reference=self._reference,
            arguments=None,
            result=result,
            search_path=self._search_path,
            process=signature,
        )

    def _sent_columns(self, kind: type[ProcessFunction]) -> DataType:
        """The columns that a process table function sends, as its methods are annotated."""
        place = ""
        for name in ("process_element", "on_timer"):
            method = getattr(kind, name, None)
            if method is None:
                continue
            given = signature_of(method).result
            place = place or given.place
            text = f"what {name} gives is annotated {{}} ({given.place})"
            columns = self._annotated(partial(columns_of_annotation, given.annotation), text)
            if columns is not None:
                return columns
        where = f" ({place})" if place else ""
        hint = 'annotate process_element or on_timer, -> Iterator[Alert], or declare them: @flowrun.ptf(result="word STRING, size INT")'
        raise self._error(f"the columns of the rows that it sends are not known{where}", hint)

    def _parameters(self, kind: type) -> tuple[Parameter, ...]:
        """What the class is made with."""
        if inspect.getattr_static(kind, "__init__") is object.__init__:
            return ()
        annotations = {p.name: p for p in signature_of(inspect.getattr_static(kind, "__init__"), 1).parameters}
        named = [
            p for p in inspect.signature(kind).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        found = []
        for parameter in named:
            given = annotations.get(parameter.name, NamedAnnotation(parameter.name, None))
            type = self._annotated(partial(_type_of, given))
            found.append(Parameter(parameter.name, type, parameter.default is parameter.empty))
        return tuple(found)

    def _error(self, message: str, hint: str | None) -> ExpressionError:
        return error_at(f"'{self._statement.reference}': {message}", self._span, hint)

    def _kind(self) -> Callee:
        """The kind of a function without a decorator."""
        if all(callable(getattr(self._target, m, None)) for m in _AGGREGATE_METHODS):
            return Callee.AGGREGATE
        called, skip = self._called()
        if inspect.isgeneratorfunction(called) or is_iterator(signature_of(called, skip).result.annotation):
            return Callee.TABLE
        return Callee.SCALAR

    def _called(self) -> tuple[Any, int]:
        """What is called, and how many parameters come before the arguments."""
        target = self._target
        if inspect.isroutine(target) or isinstance(target, partial):
            return target, 0
        owner = target if inspect.isclass(target) else type(target)
        method = getattr(target, "eval", None)
        if method is None:
            found = next((vars(c)["__call__"] for c in owner.__mro__ if "__call__" in vars(c)), None)
            method = found if inspect.isclass(target) or found is None else target.__call__
        if method is None or not callable(method):
            what = type(target).__name__ if not inspect.isclass(target) else "class without __call__ or eval"
            raise self._error(
                f"this is a {what}, which cannot be called", "name a function, or a class with __call__ or eval"
            )
        return method, int(inspect.isclass(target))

    @cached_property
    def _aggregate(self) -> Aggregate:
        return self._at_reference(lambda: made_aggregate(self._reference, self._search_path))

    def _at_reference(self, make: Callable[[], T]) -> T:
        """What is made, with its errors at the place of the reference."""
        try:
            return make()
        except PipelineError as error:
            found = error.diagnostics[0]
            raise error_at(found.message, self._span, found.hint) from error


def _type_of(given: NamedAnnotation) -> DataType | None:
    return given.type


def _as_columns(declared: DataType) -> DataType:
    return declared if declared.root is TypeRoot.ROW else row(("f0", declared))


def _decorator(kind: Callee) -> str:
    return "udaf" if kind is Callee.AGGREGATE else "udf"
