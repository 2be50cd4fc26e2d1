"""Disjunctions: what all of their branches ask, and what follows from them for some columns.

Both hold in three-valued logic, whose AND and OR distribute over each other. A part that may fail stays behind the parts that
guard it, and one that is not the same each time stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowrun.plan.conditions import conjunction, conjuncts, may_move
from flowrun.plan.expressions import And, Call, Expression, Or, columns_used
from flowrun.plan.fallibility import is_deterministic, may_fail

_SYMMETRIC = frozenset(("=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"))


def factored(condition: Expression) -> Expression:
    """The condition with what every branch of an OR asks before the OR: `(a AND p) OR (a AND q)` is `a AND (p OR q)`.

    An equality is the same whichever side comes first. Conjunctions are flat in the result.

    >>> from flowrun.core.types import BOOLEAN
    >>> from flowrun.plan.expressions import ColumnRef
    >>> a, p, q = (ColumnRef(BOOLEAN, i, n) for i, n in enumerate("apq"))
    >>> print(factored(Or((And((a, p)), And((q, a))))))
    (a AND (p OR q))
    >>> print(factored(Or((And((a, p)), a))))
    a
    """
    match condition:
        case And(operands=operands):
            return conjunction(map(factored, operands)) or condition
        case Or(operands=operands):
            return _factored_branches([conjuncts(factored(o)) for o in operands], condition)
        case _:
            return condition


def factored_conjuncts(condition: Expression | None) -> tuple[Expression, ...]:
    """The conjuncts of the factored condition; none for no condition."""
    return () if condition is None else conjuncts(factored(condition))


def implied(condition: Expression, reads: Callable[[frozenset[int]], bool]) -> Expression | None:
    """What must be true wherever the disjunction is, by parts alone whose columns satisfy `reads`; None if a branch has no such part.

    Only parts that may be tested earlier and on more rows count.

    >>> from flowrun.core.types import BOOLEAN
    >>> from flowrun.plan.expressions import ColumnRef
    >>> a, p, q = (ColumnRef(BOOLEAN, i, n) for i, n in enumerate("apq"))
    >>> print(implied(Or((And((a, p)), q)), lambda columns: columns <= {1, 2}))
    (p OR q)
    """
    if not isinstance(condition, Or):
        return None
    branches = []
    for operand in condition.operands:
        own = conjunction(p for p in conjuncts(operand) if may_move(p) and reads(columns_used(p)))
        if own is None:
            return None
        branches.append(own)
    return _disjunction(branches)


def _factored_branches(branches: Sequence[tuple[Expression, ...]], condition: Or) -> Expression:
    identities = [{_identity(p) for p in branch} for branch in branches]
    shared = set.intersection(*identities)
    common: list[Expression] = []
    for place, part in enumerate(branches[0]):
        unguarded = place == len(
            common
        )  # only what comes out as well is before it: it is tested on the same rows as ever
        if _identity(part) in shared and is_deterministic(part) and (unguarded or not may_fail(part)):
            common.append(part)
    if not common:
        return condition
    taken = {_identity(p) for p in common}
    rests = [conjunction(p for p in branch if _identity(p) not in taken) for branch in branches]
    present = [r for r in rests if r is not None]
    if len(present) < len(rests):  # a branch asks nothing more
        return conjunction(common) or condition
    return conjunction([*common, factored(_disjunction(present))]) or condition


def _disjunction(branches: Sequence[Expression]) -> Expression:
    flat = dict.fromkeys(b for branch in branches for b in (branch.operands if isinstance(branch, Or) else (branch,)))
    return Or(tuple(flat)) if len(flat) > 1 else next(iter(flat))


def _identity(part: Expression) -> object:
    """Equal for parts that mean the same: of a symmetric comparison both orders do."""
    if isinstance(part, Call) and part.function in _SYMMETRIC and len(part.arguments) == 2:
        return part.function, frozenset(part.arguments)
    return part
