"""The one table of SQL functions: every scalar function and aggregate under its names.

Names are upper-case and case does not matter in look-ups. Two records under one name are an `InternalError` when this module is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from flowrun.errors import InternalError
from flowrun.functions.aggregates.builtin import AGGREGATES
from flowrun.functions.aggregates.ordered_values import ORDERED_VALUES
from flowrun.functions.collections.arrays import ARRAYS
from flowrun.functions.collections.maps import MAPS
from flowrun.functions.contract import AggregateFunction, ScalarFunction
from flowrun.functions.json.construct import JSON_CONSTRUCTORS
from flowrun.functions.json.functions import JSONS
from flowrun.functions.json.variant import VARIANT_INTERNALS, VARIANTS
from flowrun.functions.numbers.maths import MATHS
from flowrun.functions.numbers.rounding import ROUNDINGS
from flowrun.functions.operators.buckets import INTERNALS
from flowrun.functions.operators.conditional import CONDITIONALS
from flowrun.functions.operators.operators import OPERATORS
from flowrun.functions.strings.addresses import ADDRESSES
from flowrun.functions.strings.codes import STRING_CODES
from flowrun.functions.strings.hashing import HASHES
from flowrun.functions.strings.regexp import REGEXPS
from flowrun.functions.strings.search import STRING_SEARCH
from flowrun.functions.strings.strings import STRINGS
from flowrun.functions.times.current_time import CURRENT_TIMES
from flowrun.functions.times.functions import TEMPORALS
from flowrun.functions.times.local_times import LOCAL_TIMES
from flowrun.functions.times.texts import TEMPORAL_TEXTS

Record = TypeVar("Record", bound=ScalarFunction | AggregateFunction)


def index_by_name(records: Iterable[Record]) -> dict[str, Record]:
    """The records under their names and aliases.

    Raises:
        InternalError: two records share a name.
    """
    table: dict[str, Record] = {}
    for record in records:
        for name in (record.name, *record.aliases):
            if table.setdefault(name, record) is not record or name != name.upper():
                raise InternalError(f"function name {name} is registered twice, or is not upper-case")
    return table


_SCALARS: tuple[ScalarFunction, ...] = (
    *OPERATORS,
    *STRINGS,
    *STRING_SEARCH,
    *STRING_CODES,
    *ADDRESSES,
    *REGEXPS,
    *MATHS,
    *ROUNDINGS,
    *TEMPORALS,
    *TEMPORAL_TEXTS,
    *CURRENT_TIMES,
    *ARRAYS,
    *MAPS,
    *JSONS,
    *JSON_CONSTRUCTORS,
    *VARIANTS,
    *CONDITIONALS,
    *HASHES,
)
_SCALAR_BY_NAME = index_by_name((*_SCALARS, *INTERNALS, *VARIANT_INTERNALS, *LOCAL_TIMES, *ORDERED_VALUES))
_AGGREGATE_BY_NAME = index_by_name(AGGREGATES)


def scalar(name: str) -> ScalarFunction | None:
    """The scalar function or operator of a name or alias, in any case.

    >>> scalar("ceiling").name, scalar("nope")
    ('CEIL', None)
    """
    return _SCALAR_BY_NAME.get(name.upper())


def aggregate(name: str) -> AggregateFunction | None:
    """The aggregate of a name or alias, in any case.

    >>> aggregate("variance").name, aggregate("upper")
    ('VAR_SAMP', None)
    """
    return _AGGREGATE_BY_NAME.get(name.upper())


def scalar_functions() -> tuple[ScalarFunction, ...]:
    """All scalar functions and operators, each once."""
    return _SCALARS


def aggregate_functions() -> tuple[AggregateFunction, ...]:
    """All aggregates, each once."""
    return AGGREGATES


def scalar_names() -> tuple[str, ...]:
    """Every name and alias of a scalar function: what near matches are looked for in."""
    return tuple(_SCALAR_BY_NAME)


def aggregate_names() -> tuple[str, ...]:
    """Every name and alias of an aggregate."""
    return tuple(_AGGREGATE_BY_NAME)
