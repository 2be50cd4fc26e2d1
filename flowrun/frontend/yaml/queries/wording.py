"""What messages say in SQL that a document says otherwise."""

from __future__ import annotations

import re

from flowrun.errors import ExpressionError

_PLAN_WORDS = (
    ("'format' = 'debezium-json' or 'canal-json'", "format: debezium-json or canal-json"),
    ("a PRIMARY KEY (…) NOT ENFORCED on the sink", "primary_key: […] on the sink"),
    ("PRIMARY KEY (…) NOT ENFORCED on the source", "primary_key: […] on the source"),
    ("a window (TUMBLE, HOP, CUMULATE, SESSION)", "a step with window and aggregate"),
    (
        "give the table a PRIMARY KEY (…) NOT ENFORCED and a WATERMARK",
        "give the source primary_key: […] and a watermark",
    ),
    (
        "read a view of the last row of each key: SELECT … FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY key ORDER BY ts DESC) AS rn "
        "FROM versions) WHERE rn = 1",
        "join a step with key_by and deduplicate: {keep: last, order_by: ts}",
    ),
    ("a column AS PROCTIME()", "as_of: PROCTIME()"),
    ("the column that WATERMARK FOR names", "the column of the source's watermark"),
    ("FOR SYSTEM_TIME AS OF", "as_of"),
    ("ROW_NUMBER()", "top_n"),
    ("a plain GROUP BY over them", "a step with key_by and aggregate only"),
)
"""How hints about plans say in SQL what a document says otherwise."""


def in_yaml(hint: str | None) -> str | None:
    """A hint in the words of a document.

    >>> in_yaml("use a PRIMARY KEY (…) NOT ENFORCED on the sink")
    'use primary_key: […] on the sink'
    """
    return None if hint is None else _reworded(hint, _PLAN_WORDS)


_QUERY_WORDS = (
    ("a condition of WHERE must", "a condition must"),
    ("is an aggregate, it is not possible in WHERE", "is an aggregate, it works only under 'aggregate'"),
    (
        "is an aggregate, it is not possible in a select list of rows",
        "is an aggregate, it works only under 'aggregate'",
    ),
    ("is neither grouped nor aggregated", "is neither a key nor inside an aggregate"),
    ("is not aggregated", "is neither a key nor inside an aggregate"),
    ("nor a column of this query", "nor a column of this step"),
    ("after the query", "after the expression"),
    ("the query is nested too deeply", "the expression is nested too deeply"),
)
_QUERY_HINTS = (
    ("use HAVING, or compare with a subquery: (SELECT … FROM …)", "move it there, with key_by and window"),
    ("aggregate in a subquery in FROM first", "move it there, with key_by and window"),
    ("aggregate in a subquery in FROM, then again", "aggregate in two steps, one after the other"),
    ("add it to GROUP BY, or", "add it to key_by, or"),
    ("split it with CREATE VIEW", "compute a part of it in a step before"),
)


_UNKNOWN_TABLE = re.compile(r"table '.*' does not exist")


def in_step(error: ExpressionError, input: str = "") -> ExpressionError:
    """What is wrong with a query that a step's parts were composed to, in the step's words.

    Args:
        error: as the query binder says it.
        input: how the query names the step's rows, which by then need not be those of the source or step of that name; empty: it has none.

    >>> in_step(ExpressionError("column 'x' does not exist in orders"), "orders").message
    "column 'x' does not exist in the input"
    """
    message = _reworded(error.message, _QUERY_WORDS)
    unknown = f" does not exist in {input}"
    if message.endswith(unknown):
        message = message.removesuffix(unknown) + " does not exist in the input"
    hint = None if error.hint is None else _reworded(error.hint, _QUERY_HINTS)
    if _UNKNOWN_TABLE.fullmatch(message):
        hint = f"a query in a part of a step reads the step's input only, as '{input}': use join, or a step with sql"
    return ExpressionError(message, offset=error.offset, length=error.length, hint=hint)


def _reworded(text: str, words: tuple[tuple[str, str], ...]) -> str:
    for sql, yaml in words:
        text = text.replace(sql, yaml)
    return text
