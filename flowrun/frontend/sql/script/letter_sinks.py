"""The tables of a script that dead letters are written to: named by settings or by options of tables, not by an INSERT."""

from __future__ import annotations

from dataclasses import replace

from flowrun.errors import ExpressionError, did_you_mean
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.queries.from_text import BoundQuery
from flowrun.frontend.sql.script.inserts import BindConstant, insert_sink
from flowrun.frontend.sql.script.statement_reader import Slice
from flowrun.frontend.sql.script.statements import Insert
from flowrun.frontend.sql.script.tables import DeclaredTable, ScriptTables
from flowrun.frontend.sql.script.text import ScriptText, report
from flowrun.frontend.sql.spans import SeveralErrors, error_at
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import Calc, NodeHints, Plan, Sink, with_constraints
from flowrun.plan.row_errors import LETTERS, letter_sink_names
from flowrun.plan.tables import TableRole


def with_letter_sinks(
    plan: Plan, tables: ScriptTables, script: ScriptText, constant: BindConstant, diagnostics: Diagnostics
) -> Plan:
    """The plan of a script with the sinks that it names for dead letters.

    Args:
        plan: without them.
        tables: of the script.
        script: the text.
        constant: binds constants.
        diagnostics: receives what is wrong with them.
    """
    written = {sink.table.name for sink in plan.sinks}
    found: dict[str, Sink] = {}
    for name, location in letter_sink_names(plan).items():
        made = tables.local.get(name)
        if made is None:
            hint = did_you_mean(name, tables.local) or "CREATE TABLE it"
            diagnostics.error(f"there is no table '{name}' for dead letters", location, hint=hint)
        elif name in written:
            hint = "write them to a table of their own"
            diagnostics.error(f"an INSERT writes table '{name}': it cannot get dead letters", location, hint=hint)
        elif tables.check(made, TableRole.SINK):
            try:
                sink = _letter_sink(made, script, constant)
            except ExpressionError as error:
                report(error, script, diagnostics)
            else:
                (found[name],) = with_constraints((sink,), plan.settings)
    return replace(plan, letter_sinks=found)


def _letter_sink(made: DeclaredTable, script: ScriptText, constant: BindConstant) -> Sink:
    """The sink that writes dead letters to a table, over `LETTERS`: its columns are some of theirs, by name, and convert by themselves.

    Args:
        made: the table.
        script: the text.
        constant: binds constants.

    Raises:
        SeveralErrors: a column is none of dead letters, or does not convert.
    """
    wanted, name, span = made.columns.persisted.names, made.table.name, made.name_span
    unknown = [n for n in wanted if n not in LETTERS.schema]
    if unknown:
        known = ", ".join(LETTERS.schema.names)
        hint = did_you_mean(unknown[0], LETTERS.schema.names) or f"they have {known}"
        message = f"table '{name}' gets dead letters, which have no column '{unknown[0]}'"
        raise SeveralErrors([error_at(message, span, hint)])
    schema = LETTERS.schema.select(wanted)
    columns = tuple(ColumnRef(f.type, LETTERS.schema.index(f.name), f.name) for f in schema)
    chosen = Calc(schema, NodeHints(name=f"{name}.letters", location=script.locate(*span)), LETTERS, columns)
    statement = Insert((Name(name, span, False),), Slice("", span[0]))
    bound = BoundQuery(chosen, wanted, (span,) * len(wanted))
    sink = insert_sink(statement, made, bound, script, name, constant)
    return replace(sink, hints=replace(sink.hints, place=f"dead_letters.{name}"))
