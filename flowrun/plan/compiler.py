"""Expression trees → Arrow kernels: compiled once into closures, then called a batch at a time.

* Constants are folded before; scalars stay scalars until a column is asked for.
* A sub-expression that occurs several times is evaluated once a batch.
* CASE, AND and OR guard what may fail: such an operand is evaluated only on the rows that reach it, and its values are scattered
  back. What cannot fail is evaluated on every row, which is faster than selecting rows.
* An error names the expression and the first row of the batch that caused it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.errors import InternalError
from flowrun.functions.casts.casts import cast_datum
from flowrun.functions.contract import Datum
from flowrun.functions.registry import scalar
from flowrun.plan import expressions as trees
from flowrun.plan.evaluated_rows import Evaluate, EvaluatedRows, Indices, to_array
from flowrun.plan.expressions import Call, Expression
from flowrun.plan.failures import located
from flowrun.plan.fallibility import is_deterministic, may_fail
from flowrun.plan.folding import fold_constants

_FEW = 2
"""Costly operands see selected rows if those are at most one in so many."""


def compile_value(expression: trees.Expression) -> Callable[[pa.RecordBatch], pa.Array]:
    """A kernel: batch in → one array of the expression's Arrow type out.

    The kernel is pure but for non-deterministic functions and may be called from any thread. It raises `DataError` naming the row.
    """
    compiled = compile_columns((expression,))

    def kernel(batch: pa.RecordBatch) -> pa.Array:
        return compiled(batch)[0]

    return kernel


def compile_columns(expressions: Sequence[trees.Expression]) -> Callable[[pa.RecordBatch], list[pa.Array]]:
    """A kernel that gives one array an expression; the expressions share common sub-expressions."""
    folded = [fold_constants(e) for e in expressions]
    compiler = _Compiler(folded)
    evaluators = [(compiler.compile(e), e.type.arrow, e) for e in folded]

    def kernel(batch: pa.RecordBatch) -> list[pa.Array]:
        evaluated = EvaluatedRows.of(batch)
        columns = []
        for evaluate, arrow, expression in evaluators:
            column = to_array(evaluate(evaluated), evaluated.rows)
            if column.type != arrow:
                raise InternalError(f"{expression} gave {column.type}, expected {arrow} for {expression.type}")
            columns.append(column)
        return columns

    return kernel


class _Compiler:
    """Makes closures, and gives slots to sub-expressions that occur more than once."""

    def __init__(self, roots: Sequence[trees.Expression]) -> None:
        counts: Counter[trees.Expression] = Counter(
            e for root in roots for e in trees.walk(root) if e.children and not isinstance(e, trees.FieldAccess)
        )
        repeated = [e for e, n in counts.items() if n > 1 and is_deterministic(e)]
        self._slots = {e: slot for slot, e in enumerate(repeated)}
        self._compiled: dict[trees.Expression, Evaluate] = {}

    def compile(self, expression: trees.Expression) -> Evaluate:
        """The evaluator of a tree."""
        slot = self._slots.get(expression) if expression.children else None
        if slot is None:
            return self._node(expression)
        found = self._compiled.get(expression)
        if found is None:
            found = self._compiled[expression] = _sharing(slot, self._node(expression))
        return found

    def _node(self, expression: trees.Expression) -> Evaluate:
        match expression:
            case trees.ColumnRef(index=index):
                return lambda evaluated: evaluated.column(index)
            case trees.Literal():
                return _constant(expression)
            case trees.Call():
                return self._call(expression)
            case trees.PythonCall():
                return self._python(expression)
            case trees.Cast():
                return self._cast(expression)
            case trees.And(operands=operands):
                return self._connective(operands, pc.and_kleene, until=False)
            case trees.Or(operands=operands):
                return self._connective(operands, pc.or_kleene, until=True)
            case trees.Case():
                return self._case(expression)
            case trees.InList():
                return self._membership(expression)
            case trees.FieldAccess(operand=operand, name=name):
                inner, position = self.compile(operand), operand.type.names.index(name)
                return lambda evaluated: _field(inner(evaluated), position, expression.type.arrow)
        raise InternalError(f"no kernel for {type(expression).__name__}")

    def _call(self, expression: trees.Call) -> Evaluate:
        function = scalar(expression.function)
        if function is None:
            raise InternalError(f"function {expression.function} is not registered")
        kernel, result = function.kernel, expression.type
        arguments = [self.compile(a) for a in expression.arguments]
        run = located(lambda values, rows: kernel(values, rows, result), expression)
        if len(arguments) == 2:  # most operators
            first, second = arguments
            return lambda evaluated: run([first(evaluated), second(evaluated)], evaluated)
        return lambda evaluated: run([a(evaluated) for a in arguments], evaluated)

    def _python(self, expression: trees.PythonCall) -> Evaluate:
        from flowrun.plan.python_calls import python_kernel  # users' functions are rare

        kernel = python_kernel(expression)
        arguments = [self.compile(a) for a in expression.arguments]
        return lambda evaluated: kernel([to_array(a(evaluated), evaluated.rows) for a in arguments], evaluated)

    def _cast(self, expression: trees.Cast) -> Evaluate:
        operand, source, target, safe = (
            self.compile(expression.operand),
            expression.operand.type,
            expression.type,
            expression.safe,
        )
        run = located(lambda values, _: cast_datum(values[0], source, target, safe=safe), expression)
        return lambda evaluated: run([operand(evaluated)], evaluated)

    def _connective(
        self, operands: Sequence[trees.Expression], combine: Callable[..., Datum], *, until: bool
    ) -> Evaluate:
        """AND (`until` FALSE) or OR (`until` TRUE): an operand that may fail sees only the rows that are still undecided, and so does a
        costly one if they are few.
        """
        first = self.compile(operands[0])
        rest = [(self.compile(o), may_fail(o), self._is_costly(o)) for o in operands[1:]]
        undecided = pa.scalar(not until)

        def evaluate(evaluated: EvaluatedRows) -> Datum:
            answer = first(evaluated)
            for operand, fallible, costly in rest:
                if not fallible and not costly:
                    answer = combine(answer, operand(evaluated))
                    continue
                open_rows = _rows_equal(pc.fill_null(answer, undecided), not until, evaluated.rows)
                if open_rows is None or (not fallible and len(open_rows) * _FEW > evaluated.rows):
                    answer = combine(answer, operand(evaluated))
                elif len(open_rows):
                    column = to_array(answer, evaluated.rows)
                    part = operand(evaluated.select(open_rows))
                    chosen = pa.array(_mask(open_rows, evaluated.rows))
                    merged = to_array(combine(column.take(pa.array(open_rows)), part), len(open_rows))
                    answer = pc.replace_with_mask(column, chosen, merged)
            return answer

        return evaluate

    def _is_costly(self, operand: trees.Expression) -> bool:
        """Whether to select rows for it: not if its costly part is computed for all rows anyhow, for another expression."""
        costly = [e for e in trees.walk(operand) if is_costly_call(e)]
        return bool(costly) and not any(e in self._slots for e in costly)

    def _case(self, expression: trees.Case) -> Evaluate:
        conditions = [self.compile(c) for c, _ in expression.branches]
        results = [self.compile(r) for _, r in expression.branches]
        otherwise = self.compile(expression.otherwise)
        guarded = [e for i, (c, r) in enumerate(expression.branches) for e in ((c, r) if i else (r,))]
        if any(may_fail(e) for e in (*guarded, expression.otherwise)):
            return _guarded_case(conditions, results, otherwise)

        def evaluate(evaluated: EvaluatedRows) -> Datum:
            answer = otherwise(evaluated)
            for condition, result in zip(reversed(conditions), reversed(results), strict=True):
                answer = pc.if_else(pc.fill_null(condition(evaluated), False), result(evaluated), answer)
            return answer

        return evaluate

    def _membership(self, expression: trees.InList) -> Evaluate:
        operand = self.compile(expression.operand)
        known = pa.array([v for v in expression.values if v is not None], expression.operand.type.arrow)
        has_null, negated = any(v is None for v in expression.values), expression.negated
        null = pa.scalar(None, pa.bool_())

        def evaluate(evaluated: EvaluatedRows) -> Datum:
            value = operand(evaluated)
            found = pc.is_in(value, known)
            if has_null:
                found = pc.if_else(found, True, null)
            if isinstance(value, pa.Scalar) or value.null_count:
                found = pc.if_else(pc.is_valid(value), found, null)
            return pc.invert(found) if negated else found

        return evaluate


def _constant(literal: trees.Literal) -> Evaluate:
    value = pa.scalar(literal.value, literal.type.arrow)
    return lambda _: value


def _sharing(slot: int, evaluate: Evaluate) -> Evaluate:
    return lambda evaluated: evaluated.shared(slot, evaluate)


def _field(value: Datum, position: int, arrow: pa.DataType) -> Datum:
    if isinstance(value, pa.Scalar) and not value.is_valid:
        return pa.scalar(None, arrow)
    return pc.struct_field(value, [position])


def _mask(indices: Indices, rows: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    mask = np.zeros(rows, np.bool_)
    mask[indices] = True
    return mask


def _rows_equal(flags: Datum, wanted: bool, rows: int) -> Indices | None:
    """Positions where the (non-NULL) flag is `wanted`; None for all rows."""
    if isinstance(flags, pa.Scalar):
        return None if flags.as_py() is wanted else np.empty(0, np.int64)
    values = flags.to_numpy(zero_copy_only=False)
    found = np.flatnonzero(values if wanted else ~values)
    return None if len(found) == rows else found


def _guarded_case(conditions: Sequence[Evaluate], results: Sequence[Evaluate], otherwise: Evaluate) -> Evaluate:
    """CASE that narrows the rows branch by branch, then puts the pieces back in order."""

    def evaluate(evaluated: EvaluatedRows) -> Datum:
        pieces: list[tuple[Indices, pa.Array]] = []
        rows, rest = np.arange(evaluated.rows), evaluated
        for condition, result in zip(conditions, results, strict=True):
            if not rest.rows:
                break
            hits = _rows_equal(pc.fill_null(condition(rest), False), True, rest.rows)
            if hits is None:
                if not pieces:
                    return result(rest)
                pieces.append((rows, to_array(result(rest), rest.rows)))
                rows, rest = rows[:0], rest.select(rows[:0])
            elif len(hits):
                pieces.append((rows[hits], to_array(result(rest.select(hits)), len(hits))))
                misses = np.flatnonzero(~_mask(hits, rest.rows))
                rows, rest = rows[misses], rest.select(misses)
        if not pieces:
            return otherwise(rest)
        if rest.rows:
            pieces.append((rows, to_array(otherwise(rest), rest.rows)))
        return _assembled(pieces, evaluated.rows)

    return evaluate


def _assembled(pieces: Sequence[tuple[Indices, pa.Array]], rows: int) -> pa.Array:
    places = np.empty(rows, np.int64)
    places[np.concatenate([indices for indices, _ in pieces])] = np.arange(rows)
    return pa.concat_arrays([values for _, values in pieces]).take(pa.array(places))


_COSTLY = ("LIKE", "SIMILAR TO", "SPLIT_INDEX", "DATE_FORMAT", "PARSE_URL", "URL_DECODE", "URL_ENCODE", "MD5", "SHA2")
_COSTLY_KINDS = ("REGEXP", "JSON_")


def is_costly_call(expression: Expression) -> bool:
    """Whether the expression itself, apart from its arguments, takes some hundred nanoseconds a row or more.

    >>> from flowrun.core.types import BOOLEAN
    >>> is_costly_call(Call(BOOLEAN, "REGEXP", ())), is_costly_call(Call(BOOLEAN, "=", ()))
    (True, False)
    """
    if not isinstance(expression, Call):
        return False
    return expression.function in _COSTLY or expression.function.startswith(_COSTLY_KINDS)
