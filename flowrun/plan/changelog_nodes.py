"""Nodes between tables that change and rows that say of themselves which change they are: TO_CHANGELOG and FROM_CHANGELOG of Flink SQL,
and what makes whole changes of upserts and of changes that come twice.
"""

from __future__ import annotations

from flowrun.plan.description import Added, InsertsOnly, Passed, Rows, input_node, node, parameter, positions
from flowrun.plan.nodes import PlanNode

Codes = tuple[tuple[str, int], ...]
"""(the text that stands for a change, its `RowKind`)."""


@node(output=(Passed("input"), Added()), needs_all=True, final=True)
class ToChangelog(PlanNode):
    """Each change of the input as a row that is inserted: the input's columns, then one with the text of its kind.

    Attributes:
        codes: the text of each kind; changes of other kinds are dropped.
        keys: positions of the columns whose rows stay together; empty: rows stay where they are.
    """

    input: PlanNode = input_node()
    codes: Codes = parameter()
    keys: tuple[int, ...] = positions("input", default=())


@node(inserts_only=InsertsOnly("FROM_CHANGELOG", hint="read the table as it is: it changes already"))
class FromChangelog(PlanNode):
    """The changes that the input's rows say they are: its columns without the one with the text of the kind.

    Attributes:
        operation: position of the column that holds the text.
        codes: the kind that each text stands for.
        skip: whether rows with another text, or NULL, are left out; else they fail the job.
        keys: positions of the columns whose rows stay together; empty: rows stay where they are.
        upsert: the rows are upserts by the keys.
    """

    input: PlanNode = input_node()
    operation: int = positions("input")
    codes: Codes = parameter()
    skip: bool = parameter(default=False)
    keys: tuple[int, ...] = positions("input", default=())
    upsert: bool = parameter(default=False)


@node(output=(Passed("input"),), rows=Rows.SOME, keeps_rows=True)
class ChangelogNormalize(PlanNode):
    """The input's rows as whole changes by key: Flink's ChangelogNormalize. Of upserts, and of changes that may come twice.

    The row of each key is remembered: −U and −D come out as it was. A row that equals it, −U, and −D of a key without one are dropped.

    Attributes:
        keys: positions of the columns of the key.
    """

    input: PlanNode = input_node()
    keys: tuple[int, ...] = positions("input", groups=True)
