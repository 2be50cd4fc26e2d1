"""Scalars that occur all over the document: names, expressions, types."""

from __future__ import annotations

from flowrun.frontend.trees.spec import NAME_PATTERN, TextValue

EXPRESSION = TextValue("a SQL expression")
COLUMN = TextValue("a column name")
TYPE = TextValue("a SQL type")
REFERENCE = TextValue("the name of a source, step, split branch or late output")
NODE_NAME = TextValue("a name", NAME_PATTERN, "letters, digits, _ and -, not beginning with a digit")
COLUMN_NAME = TextValue("a column name", r"\S(.*\S)?", "not empty")
PYTHON_NAME = TextValue("a Python function", r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "written module:function")
FUNCTION_NAME = TextValue(
    "a function's name", r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _, not beginning with a digit"
)
ORDER = TextValue("a column, perhaps with DESC and NULLS FIRST or LAST")
