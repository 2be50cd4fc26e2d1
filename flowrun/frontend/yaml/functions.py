"""The document's own functions for SQL: each loaded and its types found when the document is read, not when it runs."""

from __future__ import annotations

from flowrun.errors import ExpressionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.sql.catalog import UserFunction
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.script.functions import user_function
from flowrun.frontend.sql.script.statements import CreateFunction
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Section
from flowrun.operators.function_scope import FunctionScope


def read_functions(document: Section, scope: FunctionScope, diagnostics: Diagnostics) -> dict[str, UserFunction]:
    """The functions by name in upper case; those that are wrong are reported and left out.

    Args:
        document: the whole.
        scope: where they may come from.
        diagnostics: receives every problem.
    """
    found: dict[str, UserFunction] = {}
    for name, named in document.named("functions").items():
        if not isinstance(named.value, YamlScalar):
            continue
        if name.upper() in found:
            hint = "functions differ in more than upper and lower case"
            diagnostics.error(f"there are two functions '{name}'", named.location, hint=hint)
            continue
        statement = CreateFunction((Name(name, (0, 0)),), named.value.text, (0, 0), "PYTHON", (0, 0))
        try:
            found[name.upper()] = user_function(statement, scope)
        except ExpressionError as error:
            diagnostics.error(error.message, named.value.location, hint=error.hint)
    return found
