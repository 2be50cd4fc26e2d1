"""The declaration of a pipeline document: every key, its kind, default and meaning.

It is this and the modules `document_tables`, `document_windows`, `relational` and `flowrun.frontend.settings.declaration`; nothing else
says so.
"""

from __future__ import annotations

from flowrun.frontend.settings.declaration import SETTINGS
from flowrun.frontend.trees.spec import (
    AnyValue,
    BooleanValue,
    ChoiceValue,
    KeySpec,
    ListValue,
    MapValue,
    RecordSpec,
    RecordValue,
    TextValue,
)
from flowrun.frontend.yaml.declaration.document_async import ASYNC, CLASS_NAME
from flowrun.frontend.yaml.declaration.document_tables import SINK, SOURCE
from flowrun.frontend.yaml.declaration.document_windows import WINDOW
from flowrun.frontend.yaml.declaration.relational import RELATIONAL_KEYS, SET_KEYS
from flowrun.frontend.yaml.declaration.vocabulary import (
    COLUMN_NAME,
    EXPRESSION,
    FUNCTION_NAME,
    HINT_KEYS,
    NODE_NAME,
    PYTHON_NAME,
    REFERENCE,
    SCHEMA_DOC,
    TYPE,
)

PYTHON = RecordSpec(
    "python",
    "a Python function",
    "A Python function over rows. `module:function` alone stands for `{function: module:function}`.",
    (
        KeySpec("function", PYTHON_NAME, "`module:function`, importable from the pipeline's folder.", required=True),
        KeySpec("row", BooleanValue(), "Call it with one row (a dict) at a time: easy, but slow.", default="false"),
        KeySpec(
            "schema",
            MapValue(TYPE, COLUMN_NAME),
            f"{SCHEMA_DOC}, of what it returns.",
            default="the columns it is given",
        ),
        KeySpec(
            "side_outputs",
            MapValue(MapValue(TYPE, COLUMN_NAME), NODE_NAME),
            "Further outputs of a function with a second parameter `context`: names that can be read like steps, and their columns.",
        ),
    ),
)
PROCESS = RecordSpec(
    "process",
    "a process function",
    "A Python class that sees every row or batch, with state and timers a key if the step has `key_by`; with `window` one that sees the "
    "rows of windows when they fire. `module:Class` alone stands for `{function: module:Class}`.",
    (
        KeySpec(
            "function",
            TextValue("a Python class", r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "written module:Class"),
            "`module:Class`, importable from the pipeline's folder; extends `KeyedProcessFunction` or `ProcessFunction`, with `window` "
            "`ProcessWindowFunction`.",
            required=True,
        ),
        KeySpec("with", MapValue(AnyValue(), TextValue("a name")), "Arguments of the class, by name."),
        KeySpec(
            "schema",
            MapValue(TYPE, COLUMN_NAME),
            f"{SCHEMA_DOC}, of what it sends.",
            default="the columns it is given",
        ),
        KeySpec(
            "side_outputs",
            MapValue(MapValue(TYPE, COLUMN_NAME), NODE_NAME),
            "Further outputs: names that can be read like steps, and their columns.",
        ),
    ),
)
CONNECT = RecordSpec(
    "connect",
    "a connected stream",
    "A second stream for the step's process function, which then has a method for the rows of each: it extends `KeyedCoProcessFunction`, "
    "`CoProcessFunction`, `CoMapFunction` or `CoFlatMapFunction`. A name alone stands for `{with: name}`.",
    (
        KeySpec("with", REFERENCE, "The second input.", required=True),
        KeySpec(
            "key_by",
            ListValue(TextValue("a column, or an expression AS name")),
            "Its keys: as many as the step's, of equal types. Rows of either input with equal keys meet in one subtask and share its "
            "state.",
            default="the step's `key_by`",
        ),
    ),
)
BROADCAST = RecordSpec(
    "broadcast",
    "a broadcast stream",
    "A second stream for the step's process function, all of whose rows reach every subtask, to be kept in broadcast state: the class "
    "extends `KeyedBroadcastProcessFunction` or, without `key_by`, `BroadcastProcessFunction`. A name alone stands for `{with: name}`.",
    (
        KeySpec("with", REFERENCE, "The second input: rules, limits, settings.", required=True),
        KeySpec(
            "states",
            ListValue(TextValue("a state's name")),
            "Names of the broadcast states that its rows change; if given, they are compared with those that the class declares.",
            default="all that the class declares",
        ),
    ),
)
STEP = RecordSpec(
    "step",
    "a step",
    "What happens to rows. Its parts apply in this order, whatever order they are written in: join, unnest, filter, select, map or "
    "flat_map, async, match_recognize, window, distinct, over, key_by with process (and connect or broadcast), aggregate or deduplicate, "
    "having, top_n, order_by and limit, split.",
    (
        KeySpec("from", REFERENCE, "The input. A step has one of `from`, `sql`, `union`, `intersect` and `except`."),
        KeySpec(
            "union", ListValue(REFERENCE, minimum=2, single=False), "Several inputs with equal columns: all their rows."
        ),
        *SET_KEYS,
        *RELATIONAL_KEYS,
        KeySpec("filter", EXPRESSION, "Keeps the rows for which this is true; over the input's columns."),
        KeySpec(
            "select",
            ListValue(TextValue("a SQL expression, or *")),
            "The columns to go on with: names, `expression AS name`, or `*` for all.",
        ),
        KeySpec("map", RecordValue(PYTHON, PYTHON_NAME), "A Python function: as many rows out as in."),
        KeySpec("flat_map", RecordValue(PYTHON, PYTHON_NAME), "A Python function: any number of rows out."),
        KeySpec(
            "async",
            RecordValue(ASYNC, CLASS_NAME),
            "A Python class that asks something outside for each row, for many at a time.",
        ),
        KeySpec(
            "process",
            RecordValue(
                PROCESS, TextValue("a Python class", r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "written module:Class")
            ),
            "A Python class with state and timers.",
        ),
        KeySpec(
            "connect",
            RecordValue(CONNECT, REFERENCE),
            "A second stream, whose rows `process` sees as well; `filter`, `select` and the like are about the rows of the first.",
        ),
        KeySpec(
            "broadcast",
            RecordValue(BROADCAST, REFERENCE),
            "A second stream, all of whose rows each subtask of `process` sees.",
        ),
        KeySpec(
            "key_by",
            ListValue(TextValue("a column, or an expression AS name")),
            "Columns that rows are grouped by; without it an aggregate spans all rows at parallelism 1, and a process function has no "
            "state.",
        ),
        KeySpec(
            "null_keys",
            ChoiceValue(("fail", "group", "drop")),
            "Rows with a NULL key: fail the job, form a group of their own as in SQL, or are dropped.",
            default="`fail` with `window` or `process`, else `group`",
        ),
        KeySpec(
            "window",
            WINDOW,
            "Which rows are aggregated, or given to `process`, together. Without either: every row once for each of its windows, with the "
            "columns window_start, window_end and window_time, by which steps can group, join and rank.",
        ),
        KeySpec(
            "aggregate",
            ListValue(TextValue("an aggregate AS name")),
            "Aggregates, e.g. `COUNT(*) AS n`. The step's columns are the keys, window_start, window_end, and these; "
            "with `window_time` in the list also their event time, by which SQL can go on. Without `window` "
            "results are kept up to date: they change with every row.",
        ),
        KeySpec("having", EXPRESSION, "Keeps the results for which this is true; over the columns of `aggregate`."),
        KeySpec(
            "split",
            MapValue(EXPRESSION, NODE_NAME, partial=True),
            "Names and predicates: each row goes to every branch whose predicate is true. Rows of no branch are the step's output.",
        ),
        *HINT_KEYS,
    ),
    reserved={
        "intersect_all": "number equal rows with over: ROW_NUMBER(), then use intersect",
        "except_all": "number equal rows with over: ROW_NUMBER(), then use except",
        "union_all": "'union' keeps all rows; with distinct: true each once",
        "group_by": "use key_by",
        "input": "use from",
        "inputs": "use union",
        "where": "use filter",
        "order": "use order_by",
    },
)
PIPELINE = RecordSpec(
    "pipeline",
    "a pipeline",
    "The document. Keys that begin with `x-` are not looked at: a place for anchors.",
    (
        KeySpec("name", TextValue("a name"), "Name of the job.", default="the file's name"),
        KeySpec("settings", RecordValue(SETTINGS), "Settings of the whole pipeline."),
        KeySpec(
            "sources", MapValue(RecordValue(SOURCE), NODE_NAME, partial=True), "Where rows come from.", required=True
        ),
        KeySpec(
            "functions",
            MapValue(PYTHON_NAME, FUNCTION_NAME, partial=True),
            "The user's own functions for SQL: name and `module:attribute`, importable from the pipeline's folder. Known in `sql`, "
            "`filter`, `select`, `join`, `unnest`, `over`, `key_by`, `aggregate`, `having` and `top_n`.",
        ),
        KeySpec("steps", MapValue(RecordValue(STEP), NODE_NAME, partial=True), "What happens to them, in any order."),
        KeySpec("sinks", MapValue(RecordValue(SINK), NODE_NAME, partial=True), "Where they go.", required=True),
    ),
    free_prefix="x-",
)
DOCUMENT = RecordValue(PIPELINE)
