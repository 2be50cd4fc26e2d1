"""What occurs all over the document: names, expressions, types, and the keys that say how a node runs."""

from __future__ import annotations

from dataclasses import replace

from flowrun.frontend.settings.declaration import LIMITS, PARALLELISM
from flowrun.frontend.trees.spec import (
    NAME_PATTERN,
    BooleanValue,
    ChoiceValue,
    KeySpec,
    RecordSpec,
    RecordValue,
    TextValue,
)

EXPRESSION = TextValue("a SQL expression")
COLUMN = TextValue("a column name")
TYPE = TextValue("a SQL type")
METADATA_KEY = TextValue("a metadata key of the connector")
REFERENCE = TextValue("the name of a source, step, split branch or late output")
NODE_NAME = TextValue("a name", NAME_PATTERN, "letters, digits, _ and -, not beginning with a digit")
COLUMN_NAME = TextValue("a column name", r"[\s\S]*\S[\s\S]*", "not empty")
PYTHON_NAME = TextValue("a Python function", r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "written module:function")
FUNCTION_NAME = TextValue(
    "a function's name", r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _, not beginning with a digit"
)
ORDER = TextValue("a column, perhaps with DESC and NULLS FIRST or LAST")
SCHEMA_DOC = "Column names and SQL types, in order"
_MODES = ChoiceValue(("fail", "skip", "dead-letter"))
_DESTINATION = (
    KeySpec("mode", _MODES, "What becomes of such rows.", default="`dead-letter`"),
    KeySpec("to", TextValue("the name of a sink"), "Sink for the dead letters.", default="`settings.dead_letters`"),
)
_ON_ERROR = RecordSpec(
    "on_error",
    "on_error",
    "What becomes of rows that cannot be evaluated or written. A word alone is the `mode`.",
    _DESTINATION,
)
_SOURCE_ON_ERROR = RecordSpec(
    "source_on_error",
    "on_error",
    "What becomes of records that cannot be read, and of rows of theirs that are wrong. A word alone is the `mode`.",
    (*_DESTINATION, *LIMITS),
)
HINT_KEYS = (
    KeySpec(
        "uid",
        TextValue("a stable id"),
        "Stable id: state in a savepoint is found again by it.",
        default="its place, such as `steps.totals`",
    ),
    KeySpec("name", TextValue("a display name"), "Name shown in `explain`, metrics and messages.", default="its key"),
    KeySpec("parallelism", PARALLELISM, "Number of parallel subtasks.", default="`settings.parallelism`"),
    KeySpec(
        "on_error",
        RecordValue(_ON_ERROR, _MODES),
        "What becomes of rows that cannot be read, evaluated or written here.",
        default="`settings.on_error`",
    ),
    KeySpec(
        "slot_sharing_group",
        TextValue("a group name"),
        "Subtasks of different groups never share a slot.",
        default="that of the inputs",
    ),
    KeySpec("chaining", BooleanValue(), "`false`: the step's operators run in tasks of their own.", default="true"),
)
"""What every step and sink may say of how it runs."""
SOURCE_HINT_KEYS = tuple(
    replace(key, value=RecordValue(_SOURCE_ON_ERROR, _MODES)) if key.name == "on_error" else key for key in HINT_KEYS
)
"""The same of a source."""
