"""What plan nodes say of themselves, so that whatever goes through plans need not know each kind of node.

A node is a class under `@node`. Each of its fields is made by one of the functions below, which say what its value is: an input, positions
of an input's columns, expressions over them, …; and the class says how its rows and columns come of those of its inputs. What is derived:

- a node's inputs, the node over other inputs, and with other expressions: `rewrites/traversal.py`;
- which columns it uses, and the node over inputs with fewer columns: `rewrites/columns.py`, `rewrites/projections.py`;
- whether two nodes do the same: `rewrites/sharing.py`;
- where rows may be left out early, and what is known of them: `rewrites/pushing.py`, `rewrites/inference.py`, `rewrites/empty.py`;
- unique keys, time attributes and changes of nodes that only pass rows on, and what may not change: `unique_keys.py`, `traits.py`,
  `changelog.py`;
- what explain shows of a node that has no words of its own: `explain_relational.py`.

Records that nodes are made of (a sort key, a call of an aggregate) describe their fields alike, under `@part`; of whose columns they speak
is said where a node has them. A field that says nothing is an error when the class is made. The model is ibis, whose operations have typed
fields from which all that walks over them comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields, replace
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

from flowrun.core.record import record

Class = TypeVar("Class", bound=type)

_KEY = "flowrun.plan"


class Meaning(Enum):
    """What the value of a field is."""

    INPUT = "a node that is read"
    INPUTS = "several of them"
    SCHEMA = "columns by name and type"
    POSITIONS = "positions of columns"
    EXPRESSIONS = "expressions over a row"
    PATTERN = "expressions over the rows of a match"
    PARTS = "records that describe themselves"
    FUNCTION = "a user's Python function"
    CLOCK = "a time domain"
    PARAMETER = "none of these"
    LABEL = "for reading only"


@record
class FieldDescription:
    """What a field of a node or part is.

    Attributes:
        over: the fields whose columns are meant, one after the other: inputs, a schema, or expressions that make columns. Of a part: none,
            the node that has it says so.
        groups: rows that differ in these columns have nothing to do with each other.
    """

    name: str
    meaning: Meaning
    over: tuple[str, ...] = ()
    groups: bool = False


# -- fields --------------------------------------------------------------------------------------------------------------------
# What they give stands for a value of the field's type, as with `dataclasses.field`: hence Any.


def input_node() -> Any:
    """A node whose rows this one reads."""
    return _described(Meaning.INPUT)


def input_nodes() -> Any:
    """Any number of nodes whose rows this one reads."""
    return _described(Meaning.INPUTS)


def row_schema(*, default: object = MISSING) -> Any:
    """A schema; its names are for reading only."""
    return _described(Meaning.SCHEMA, default=default)


def positions(of: str = "", *, groups: bool = False, default: object = MISSING) -> Any:
    """A column of the input `of`, or several, by position. `groups`: rows that differ in them have nothing to do with each other."""
    return _described(Meaning.POSITIONS, (of,) if of else (), groups=groups, default=default)


def expressions(*over: str, default: object = MISSING) -> Any:
    """Expressions over the columns of the fields `over`, alone or in tuples, also together with names."""
    return _described(Meaning.EXPRESSIONS, over, default=default)


def pattern_expressions(over: str) -> Any:
    """Expressions over the rows of a match, each of which has the columns of `over`."""
    return _described(Meaning.PATTERN, (over,))


def parts(*over: str, default: object = MISSING) -> Any:
    """Records made by `@part` that speak of the columns of the fields `over`, alone or in tuples."""
    return _described(Meaning.PARTS, over, default=default)


def user_function() -> Any:
    """The reference of a user's Python function: it may do anything, and each time something else."""
    return _described(Meaning.FUNCTION)


def clock(*, default: object = MISSING) -> Any:
    """The time domain that the node goes by."""
    return _described(Meaning.CLOCK, default=default)


def parameter(*, default: object = MISSING, default_factory: object = MISSING) -> Any:
    """A value that speaks of no columns."""
    return _described(Meaning.PARAMETER, default=default, default_factory=default_factory)


def label(*, default: object = MISSING, compare: bool = True) -> Any:
    """A value that is for reading only: it changes nothing of what is computed. `compare`: it counts for `==` nevertheless."""
    return _described(Meaning.LABEL, default=default, compare=compare)


def _described(
    meaning: Meaning,
    over: tuple[str, ...] = (),
    *,
    groups: bool = False,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    compare: bool = True,
) -> Any:
    said = _said(meaning, over, groups)
    return field(default=default, default_factory=default_factory, compare=compare, metadata=said)


@cache  # most fields say the same
def _said(meaning: Meaning, over: tuple[str, ...], groups: bool) -> Mapping[str, FieldDescription]:
    return {_KEY: FieldDescription("", meaning, over, groups)}


# -- rows and columns of the output ----------------------------------------------------------------------------------------------


@record
class Passed:
    """All columns of an input, each as it was. `when`: only if this attribute of the node is true."""

    input: str
    when: str = ""


@record
class Taken:
    """The columns of an input at the positions that a field holds."""

    field: str


@record
class Each:
    """One column an entry of a field, which nobody computes if nobody reads it.

    Attributes:
        across: the field has a tuple for each of several rows, with an entry a column in each.
        least: so many entries must stay.
    """

    field: str
    across: bool = False
    least: int = 0


@record
class Added:
    """All columns that are not described otherwise: they come with the node."""


Columns = Passed | Taken | Each | Added


class Rows(Enum):
    """How the rows of the output come of those of the input."""

    EACH = "each of the only input's, once"
    SOME = "some of the input's"
    REPEATED = "each of the input's, any number of times"
    OTHER = "rows made of several, or of none"
    USER = "what a user's function makes, perhaps of no row"


@record
class InsertsOnly:
    """That a node cannot take changes.

    Attributes:
        what: it is called in messages.
        hint: what to do instead.
        inputs: of which it cannot take them, by number.
    """

    what: str
    hint: str = ""
    inputs: tuple[int, ...] = (0,)


# -- classes ---------------------------------------------------------------------------------------------------------------------


@record(eq=False)
class NodeDescription:
    """What a kind of node says of itself.

    Attributes:
        fields: all, by name.
        inputs: the fields with nodes that are read, in order.
        evaluated: the fields with expressions over the rows that are read; of a node without inputs, over the rows of a schema of its own.
        over_inputs: the fields that speak of columns of an input.
        output: the columns of the output from left to right; None: they are the node's own, of all that it is given.
        rows: how the rows come of those of the input.
        row_by_row: what comes of a row does not depend on other rows, and goes nowhere else: it may be left out before as well as after.
        keeps_rows: it remembers rows of its inputs, or sends them over the network: fewer columns are worth a projection before it.
        needs_all: columns of its input that nobody reads stay nevertheless.
        final: it inserts rows and never changes what it sent.
        inserts_only: which inputs may not change what they sent; None: all may.
    """

    fields: Mapping[str, FieldDescription]
    inputs: tuple[str, ...]
    evaluated: tuple[str, ...]
    over_inputs: tuple[FieldDescription, ...]
    output: tuple[Columns, ...] | None
    rows: Rows
    row_by_row: bool
    keeps_rows: bool
    needs_all: bool
    final: bool
    inserts_only: InsertsOnly | None

    def of(self, meaning: Meaning) -> tuple[FieldDescription, ...]:
        """The fields with a meaning."""
        return tuple(f for f in self.fields.values() if f.meaning is meaning)


@record(eq=False)
class PartDescription:
    """What a kind of part says of itself.

    Attributes:
        fields: all, by name.
        evaluated: the fields with expressions.
        speaking: the fields that speak of columns.
    """

    fields: Mapping[str, FieldDescription]
    evaluated: tuple[str, ...]
    speaking: tuple[FieldDescription, ...]


_EVALUATED = (Meaning.EXPRESSIONS, Meaning.PARTS)
_SPEAKING = (*_EVALUATED, Meaning.POSITIONS, Meaning.PATTERN)
# What classes say is checked when they are made, and put together when it is first asked for: most are in no plan of a run.
_NODES: dict[type, dict[str, Any]] = {}
_PARTS: dict[type, dict[str, Any]] = {}
_NODE_DESCRIPTIONS: dict[type, NodeDescription] = {}
_PART_DESCRIPTIONS: dict[type, PartDescription] = {}


@dataclass_transform(
    frozen_default=True,
    eq_default=False,
    field_specifiers=(
        input_node,
        input_nodes,
        row_schema,
        positions,
        expressions,
        pattern_expressions,
        parts,
        user_function,
        clock,
        parameter,
        label,
    ),
)
def node(
    *,
    output: tuple[Columns, ...] | None = None,
    rows: Rows = Rows.OTHER,
    row_by_row: bool = False,
    keeps_rows: bool = False,
    needs_all: bool = False,
    final: bool = False,
    inserts_only: InsertsOnly | None = None,
) -> Callable[[Class], Class]:
    """Make a class a kind of node: a record that compares by identity, with this description.

    Raises:
        TypeError: a field does not say what it is, or a description names a field that there is not.
    """

    def make(given: Class) -> Class:
        made = record(eq=False, slots=False)(given)
        said = _checked(made)
        named = {name for f in said.values() for name in f.over} | {_named(c) for c in output or ()} - {""}
        if unknown := named - said.keys():
            raise TypeError(f"{made.__name__} describes {', '.join(sorted(unknown))}, which it has not")
        inputs = tuple(name for name, f in said.items() if f.meaning in (Meaning.INPUT, Meaning.INPUTS))
        if inputs:
            several = len(inputs) > 1 or said[inputs[0]].meaning is Meaning.INPUTS
            made.inputs = property(_reading(inputs, several))  # type: ignore[attr-defined]  # of `PlanNode`
        _NODES[made] = {
            "inputs": inputs,
            "output": output,
            "rows": rows,
            "row_by_row": row_by_row,
            "keeps_rows": keeps_rows,
            "needs_all": needs_all,
            "final": final,
            "inserts_only": inserts_only,
        }
        return made

    return make


@dataclass_transform(
    frozen_default=True,
    field_specifiers=(positions, expressions, parts, row_schema, parameter, label),
)
def part(given: Class) -> Class:
    """Make a class a record that nodes are made of, whose fields are described. Raises TypeError as `node`."""
    made: Class = record(given)
    _PARTS[made] = _checked(made)
    return made


def describe_part(made: type, **said: Any) -> None:
    """Say of a record of a layer below that nodes are made of it, and what its fields are.

    Args:
        made: the record.
        said: each field by name, as a class under `part` says it.

    Raises:
        TypeError: a field is not described, or is none of the record's.
    """
    names = {entry.name for entry in fields(made)}
    if wrong := names ^ said.keys():
        raise TypeError(f"the description of {made.__name__} and its fields differ: {', '.join(sorted(wrong))}")
    _PARTS[made] = {name: field.metadata[_KEY] for name, field in said.items()}


def _checked(made: Any) -> dict[str, FieldDescription]:
    """What each field says, without its name. Raises TypeError if one says nothing."""
    said = {}
    for entry in fields(made):
        if _KEY not in entry.metadata:
            raise TypeError(f"{made.__name__}.{entry.name} does not say what it is: see {__name__}")
        said[entry.name] = entry.metadata[_KEY]
    return said


def _named(columns: Columns) -> str:
    match columns:
        case Passed(input=name) | Taken(field=name) | Each(field=name):
            return name
        case Added():
            return ""


def _reading(inputs: tuple[str, ...], several: bool) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the nodes that are read, which is asked often."""
    get = attrgetter(*inputs)
    return get if several else lambda reader: (get(reader),)


def node_description(kind: type) -> NodeDescription:
    """What a kind of node says of itself."""
    known = _NODE_DESCRIPTIONS.get(kind)
    if known is None:
        said = _NODES[kind]
        own = _named_fields(_checked(kind))
        over_inputs = tuple(f for f in own.values() if f.over and f.over[0] in said["inputs"])
        rows_read = over_inputs if said["inputs"] else tuple(f for f in own.values() if f.over)
        evaluated = tuple(f.name for f in rows_read if f.meaning in _EVALUATED)
        known = NodeDescription(fields=own, evaluated=evaluated, over_inputs=over_inputs, **said)
        _NODE_DESCRIPTIONS[kind] = known
    return known


def part_description(kind: type) -> PartDescription | None:
    """What a kind of part says of itself; None: it is no part."""
    known = _PART_DESCRIPTIONS.get(kind)
    if known is None and kind in _PARTS:
        own = _named_fields(_PARTS[kind])
        evaluated = tuple(f.name for f in own.values() if f.meaning in _EVALUATED)
        known = PartDescription(own, evaluated, tuple(f for f in own.values() if f.meaning in _SPEAKING))
        _PART_DESCRIPTIONS[kind] = known
    return known


def _named_fields(said: Mapping[str, Any]) -> dict[str, FieldDescription]:
    return {name: replace(f, name=name) for name, f in said.items()}


def node_kinds() -> tuple[type, ...]:
    """All kinds of nodes that have been made, abstract ones too."""
    return tuple(_NODES)
