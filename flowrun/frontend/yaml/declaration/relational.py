"""The specification of the parts of a step that SQL has words for: joins, rankings, UNNEST and sets of rows."""

from __future__ import annotations

from flowrun.frontend.trees.spec import (
    BooleanValue,
    ChoiceValue,
    DurationValue,
    IntegerValue,
    KeySpec,
    ListValue,
    RecordSpec,
    RecordValue,
    TextValue,
)
from flowrun.frontend.yaml.declaration.vocabulary import COLUMN_NAME, EXPRESSION, NODE_NAME, ORDER, REFERENCE

JOIN = RecordSpec(
    "join",
    "a join",
    "A second input whose rows are joined with those of the first. Columns of both sides are named with the name of their step: "
    "`orders.id`, in back ticks if that has a `-`. Without `select` a step has the columns of both sides; those of the second that are "
    "named alike get a 0 behind.",
    (
        KeySpec("with", REFERENCE, "The second (right) input.", required=True),
        KeySpec(
            "as", NODE_NAME, "Another name for its columns; needed to join a step with itself.", default="its name"
        ),
        KeySpec(
            "type",
            ChoiceValue(("inner", "left", "right", "full", "semi", "anti")),
            "Which rows come out: pairs; also rows of the left, right or both sides that have no partner, with NULLs; only rows of the "
            "left side that have a partner (`semi`) or none (`anti`).",
            default="inner",
        ),
        KeySpec("on", EXPRESSION, "The condition, over columns of both sides.", required=True),
        KeySpec(
            "as_of",
            EXPRESSION,
            "Each left row with the version of the right row that was valid at this time of the left row, a time attribute: a temporal "
            "join. The right side has a primary key and event time, or is deduplicated.",
        ),
        KeySpec(
            "kind",
            ChoiceValue(("window", "interval", "regular", "temporal", "lookup")),
            "How it must be done. flowrun finds it by itself from `on` and `as_of`; if given, it is checked. `lookup`: the right side is a "
            "source that is asked for the rows of each key as they are now.",
            default="what is found",
        ),
        KeySpec(
            "state_ttl",
            DurationValue(zero=True),
            "How long a regular join keeps rows of the second input.",
            default="the step's `state_ttl`",
        ),
    ),
)
UNNEST = RecordSpec(
    "unnest",
    "an unnest",
    "One row for each element of a collection, with the row's other columns.",
    (
        KeySpec("column", EXPRESSION, "The ARRAY, MAP or MULTISET: a column or expression.", required=True),
        KeySpec(
            "as",
            ListValue(COLUMN_NAME),
            "Names of the columns of an element: one; of a map key and value; of an array of rows one for each field.",
            required=True,
        ),
        KeySpec("ordinality", COLUMN_NAME, "Name of a further column: the element's position, from 1."),
        KeySpec(
            "outer", BooleanValue(), "`true`: rows whose collection is NULL or empty stay, with NULLs.", default="false"
        ),
    ),
)
DEDUPLICATE = RecordSpec(
    "deduplicate",
    "a deduplication",
    "One row for each value of `key_by`.",
    (
        KeySpec("keep", ChoiceValue(("first", "last")), "Which one.", required=True),
        KeySpec(
            "order_by",
            EXPRESSION,
            "The column that says which row is first. By a time attribute little state is kept; `PROCTIME()` is the order of arrival.",
            default="the input's event time, else PROCTIME()",
        ),
    ),
)
TOP_N = RecordSpec(
    "top_n",
    "a top-N",
    "The first rows of each group in some order, kept up to date; once and for all for each window if `partition_by` has its bounds.",
    (
        KeySpec("n", IntegerValue(1), "How many rows of each group.", required=True),
        KeySpec(
            "order_by", ListValue(ORDER), "The order: columns or expressions, each perhaps with DESC.", required=True
        ),
        KeySpec("partition_by", ListValue(EXPRESSION), "What makes a group.", default="all rows are one"),
        KeySpec(
            "rank", COLUMN_NAME, "Name of a further column: the rank, from 1. Without it far fewer changes are sent."
        ),
        KeySpec(
            "function",
            ChoiceValue(("row_number", "rank", "dense_rank")),
            "How rows of equal order count.",
            default="row_number",
        ),
    ),
)
RELATIONAL_KEYS = (
    KeySpec(
        "sql",
        TextValue("a SQL query"),
        "A query over sources, steps, split branches, late and side outputs, which are its tables.",
    ),
    KeySpec("join", RecordValue(JOIN), "A second input; `filter` and `select` then see the columns of both."),
    KeySpec(
        "unnest",
        RecordValue(UNNEST),
        "One row for each element of a collection; `filter` and `select` see its columns.",
    ),
    KeySpec("match_recognize", TextValue("a SQL row pattern"), "What stands in the parentheses of MATCH_RECOGNIZE."),
    KeySpec(
        "over",
        ListValue(TextValue("a window function AS name")),
        "Further columns over rows before: `SUM(amount) OVER (PARTITION BY user_id ORDER BY ts) AS total`.",
    ),
    KeySpec("distinct", BooleanValue(), "`true`: each row once.", default="false"),
    KeySpec("deduplicate", RecordValue(DEDUPLICATE), "One row for each key of `key_by`."),
    KeySpec("top_n", RecordValue(TOP_N), "The first rows of each group."),
    KeySpec(
        "order_by",
        ListValue(ORDER),
        "The order of `limit`; without it, of all rows, which then begins with the time attribute ascending.",
    ),
    KeySpec("limit", IntegerValue(1), "Keep so many rows: the first by `order_by`, else any."),
    KeySpec("offset", IntegerValue(0), "Leave out so many rows before those of `limit`.", default="0"),
    KeySpec(
        "state_ttl",
        DurationValue(zero=True),
        "How long a regular join, `aggregate` without window, `distinct`, `deduplicate` or `top_n` keeps the state of a key that gets no "
        "rows; 0: for ever.",
        default="`settings.state_ttl`",
    ),
)
SET_KEYS = tuple(
    KeySpec(name, ListValue(REFERENCE, minimum=2, single=False), doc)
    for name, doc in (
        ("intersect", "Several inputs with equal columns: rows that are in all of them, each once."),
        ("except", "Rows of the first input that are in none of the others, each once."),
    )
)
