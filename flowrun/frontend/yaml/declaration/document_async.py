"""The declaration of asynchronous functions in steps."""

from __future__ import annotations

from flowrun.frontend.trees.spec import (
    AnyValue,
    ChoiceValue,
    DurationValue,
    IntegerValue,
    KeySpec,
    MapValue,
    NumberValue,
    RecordSpec,
    RecordValue,
    TextValue,
)
from flowrun.frontend.yaml.declaration.vocabulary import COLUMN_NAME, NODE_NAME, PYTHON_NAME, SCHEMA_DOC, TYPE

CLASS_NAME = TextValue("a Python class", r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "written module:Class")
RETRY = RecordSpec(
    "retry",
    "which calls are made again",
    "Calls of an asynchronous function that are made again. The function's `timeout` holds for all calls for a row together.",
    (
        KeySpec(
            "attempts", IntegerValue(1), "How often a call is repeated at most, beside the first time.", required=True
        ),
        KeySpec("delay", DurationValue(zero=True), "How long before the first repetition.", default="1s"),
        KeySpec("multiplier", NumberValue(), "By which each delay is longer than the one before.", default="1"),
        KeySpec("max_delay", DurationValue(), "No delay is longer."),
        KeySpec(
            "on_result",
            PYTHON_NAME,
            "`module:function` that says of what a call gave whether to make it again.",
            default="no result is a reason",
        ),
        KeySpec(
            "on_exception",
            PYTHON_NAME,
            "`module:function` that says of an exception whether to make the call again.",
            default="every exception is one",
        ),
    ),
)
ASYNC = RecordSpec(
    "async",
    "an asynchronous function",
    "A Python class that asks something outside for each row, for many at a time. `module:Class` alone stands for "
    "`{function: module:Class}`.",
    (
        KeySpec(
            "function",
            CLASS_NAME,
            "`module:Class`, importable from the pipeline's folder; extends `AsyncFunction`.",
            required=True,
        ),
        KeySpec("with", MapValue(AnyValue(), TextValue("a name")), "Arguments of the class, by name."),
        KeySpec(
            "schema", MapValue(TYPE, COLUMN_NAME), f"{SCHEMA_DOC}, of what it gives.", default="the columns it is given"
        ),
        KeySpec(
            "mode",
            ChoiceValue(("ordered", "unordered")),
            "Rows leave in the order in which they came, or as they are answered, but not beyond a watermark.",
            default="ordered",
        ),
        KeySpec(
            "capacity",
            IntegerValue(1),
            "How many calls a subtask has under way at most; beyond that it reads no more.",
            default="100",
        ),
        KeySpec(
            "timeout",
            DurationValue(),
            "Time that is allowed for a row. One that takes longer fails, unless the class has a method `timeout`.",
            default="as long as it takes",
        ),
        KeySpec("retry", RecordValue(RETRY), "Which calls are made again.", default="none"),
        KeySpec(
            "call_rows",
            IntegerValue(1),
            "Of a class with `async_invoke_batch`: how many rows a call is given at most.",
            default="1000",
        ),
        KeySpec(
            "side_outputs",
            MapValue(MapValue(TYPE, COLUMN_NAME), NODE_NAME),
            "Further outputs: names that can be read like steps, and their columns.",
        ),
    ),
)
