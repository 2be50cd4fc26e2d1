"""The declaration of a file of tests: every key, its kind, default and meaning. Checks, JSON Schema and reference all come from it."""

from __future__ import annotations

from flowrun.frontend.trees.spec import (
    ChoiceValue,
    DurationValue,
    KeySpec,
    ListValue,
    MapValue,
    NumberValue,
    RecordSpec,
    RecordValue,
    TextValue,
    TreeValue,
)

AS_WRITTEN, RESTORED, RESCALED, ROW_BY_ROW, SPARK = "as written", "restored", "rescaled", "row by row", "spark"
VARIANTS = (AS_WRITTEN, RESTORED, RESCALED, ROW_BY_ROW, SPARK)
"""The ways in which each test runs, on Spark if that is asked for."""
RESULT, ROW, ROWS, OTHER_ROW = "result", "row", "rows", "other"
"""The columns of a table of calls: what the calls give, and what functions on rows are given: one, several, or one of another stream."""
WINDOW_BOUNDS = ("window_start", "window_end")
"""Columns that say of which window the rows are."""

_ROWS = TreeValue("rows: a list of mappings, a text of comma-separated values with a line of names, or `{file: PATH}`")
_FUNCTION = TreeValue("another function, written module:function, or rows of arguments and results")
_TABLE = TextValue("the name of a source")
_TEXT = TextValue()
_MOMENT = TextValue("a time such as 2024-01-01T10:00:00")

REPLACED = RecordSpec(
    "replaced",
    "what is replaced",
    "What stands for the outside.",
    (
        KeySpec(
            "lookup",
            MapValue(_ROWS, TextValue("the name of a table that is looked up in")),
            "Rows of tables that lookup joins ask; without, a test may not come to a lookup join.",
        ),
        KeySpec(
            "functions",
            MapValue(_FUNCTION, TextValue("module:function, as the pipeline names it")),
            "Python functions and classes by `module:name` as the pipeline names them, with what stands for them: another one as "
            "`module:name`, importable from the folder of the test, or a table of its calls. Of a function in expressions column `result` "
            "has the results, and the others are the arguments, in their order. Of a function on rows it has the rows that are sent, and "
            "column `row` the row that is given; `rows` has all rows of a window, or those of a key so far; `other` a row of a second "
            "stream, and a column called like a side output what is sent there. A call that the table does not have fails the test.",
        ),
    ),
)
EXPECTED = RecordSpec(
    "expected",
    "expected rows",
    "Rows that are expected of one sink. Rows alone stand for `{rows: …}`.",
    (
        KeySpec("rows", _ROWS, "The rows. Columns that none of them names are not compared.", required=True),
        KeySpec("order", ChoiceValue(("any", "exact")), "Whether their order counts.", default="`any`"),
        KeySpec(
            "key",
            ListValue(TextValue("a column")),
            "Columns by which rows that differ are shown side by side.",
            default="the sink's primary key",
        ),
        KeySpec("tolerance", NumberValue(), "How far floating numbers may differ, relative to them.", default="1e-9"),
        KeySpec(
            "as",
            ChoiceValue(("table", "changes")),
            "`table`: the rows that are left when all changes are applied. `changes`: each change, written `+I: {…}`, `-U: {…}`, "
            "`+U: {…}` or `-D: {…}`, as the pipeline makes them when it runs as written.",
            default="`table`",
        ),
    ),
)
_EXPECT = MapValue(TreeValue("expected rows"), TextValue("the name of a sink"), partial=True)
_LATE = TreeValue("a number of rows, or a mapping from steps to numbers of rows")
ERROR = RecordSpec(
    "error",
    "an error",
    "The job fails. A text alone stands for `{contains: text}`.",
    (KeySpec("contains", _TEXT, "What its message contains.", required=True),),
)
STEP = RecordSpec(
    "test_step",
    "a step of a test",
    "What happens, in the order in which it is written. Before the next thing everything has been processed that can be.",
    (
        KeySpec(
            "rows",
            MapValue(_ROWS, _TABLE),
            "Rows of sources. A source's name as a key of the step says the same, unless it is another key's.",
        ),
        KeySpec(
            "watermark",
            TreeValue("a time, or a mapping from sources to times"),
            "No row up to this time follows, of all sources that have event time, or of those that are named.",
        ),
        KeySpec("idle", ListValue(_TABLE), "Sources that do not hold event time back until their next row."),
        KeySpec("advance", DurationValue(), "Processing time goes on; all that waits for it happens at its time."),
        KeySpec("end", ListValue(TextValue("the name of a source, or all")), "Sources that end; `all`: all of them."),
        KeySpec(
            "expect",
            _EXPECT,
            "What sinks hold now: of a sink that only gets inserts the rows since it was last looked at, of others the table so far.",
        ),
        KeySpec("late", _LATE, "How many rows were dropped as late since the beginning, in all or by step."),
    ),
    open_doc="Names of sources, with rows of theirs.",
)
_SURROUNDINGS = (
    KeySpec("variables", MapValue(_TEXT, TextValue("a name")), "Values of `${NAME}` in the pipeline."),
    KeySpec(
        "set",
        MapValue(_TEXT, TextValue("a path in the pipeline")),
        "Values that replace those of the pipeline, as `--set` does: `settings.parallelism: 4`.",
    ),
    KeySpec("now", _MOMENT, "Processing time at the beginning.", default="2024-01-01T00:00:00"),
    KeySpec("replace", RecordValue(REPLACED), "What stands for the outside."),
    KeySpec(
        "variants",
        ListValue(ChoiceValue(VARIANTS)),
        "Ways in which the test runs beside `as written`: `restored` is killed and restored between all steps, `rescaled` is so at "
        "another parallelism each time, `row by row` has batches of one row; `spark` counts where all engines are asked for.",
        default="all",
    ),
)
TEST = RecordSpec(
    "test",
    "a test",
    "One story: what comes into the pipeline, and what is to come out.",
    (
        KeySpec("name", _TEXT, "What it shows.", required=True),
        KeySpec("given", MapValue(_ROWS, _TABLE), "Rows of sources, which all end after them; instead of `steps`."),
        KeySpec("steps", ListValue(RecordValue(STEP), single=False), "What happens, one thing after the other."),
        KeySpec(
            "expect",
            _EXPECT,
            "What sinks hold at the end: all rows, of sinks that get changes the table that is left.",
        ),
        KeySpec("late", _LATE, "How many rows were dropped as late, in all or by step."),
        KeySpec("error", RecordValue(ERROR, _TEXT), "The job fails, with this in its message."),
        *_SURROUNDINGS,
    ),
)
TEST_FILE = RecordSpec(
    "test_file",
    "a file of tests",
    "The document. What stands beside `tests` holds for each of them that does not say otherwise. Keys that begin with `x-` are not "
    "looked at: a place for anchors.",
    (
        KeySpec("pipeline", TextValue("a path"), "The pipeline, relative to this file.", required=True),
        KeySpec("tests", ListValue(RecordValue(TEST), single=False), "The tests.", required=True),
        *_SURROUNDINGS,
    ),
    free_prefix="x-",
)
TESTS = RecordValue(TEST_FILE)
