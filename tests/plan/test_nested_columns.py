"""Only the fields of ROWs that are used are read."""

from __future__ import annotations

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING, row
from flowrun.plan.expressions import ColumnRef, FieldAccess
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, Scan, Sink, TableReference
from flowrun.plan.rewrites.nested import prune_nested_columns

INNER = row(("city", STRING), ("zip", STRING))
PERSON = row(("id", BIGINT), ("name", STRING), ("home", INNER))
TABLE = TableReference("t", "filesystem", {})
HINTS = NodeHints()
WHOLE = ColumnRef(PERSON, 0, "person")
CITY = FieldAccess(STRING, FieldAccess(INNER, WHOLE, "home"), "city")
ID = FieldAccess(BIGINT, WHOLE, "id")


def scan() -> Scan:
    schema = Schema.of(person=PERSON)
    return Scan(schema, HINTS, TABLE, schema, (WHOLE,))


def pruned(*readers: PlanNode) -> Scan:
    plan = prune_nested_columns(Plan("p", tuple(Sink(r.schema, HINTS, r, TABLE) for r in readers)))
    node: PlanNode = plan.sinks[0]
    while node.inputs:
        node = node.inputs[0]
    assert isinstance(node, Scan)
    return node


def test_fields_that_readers_access_are_kept_in_their_order() -> None:
    source = scan()
    calc = Calc(Schema.of(city=STRING, id=BIGINT), HINTS, source, (CITY, ID))
    found = pruned(calc)
    assert found.physical.types == (row(("id", BIGINT), ("home", row(("city", STRING)))),)
    assert found.schema.types == found.physical.types
    assert found.declared == source.physical


def test_every_reader_counts() -> None:
    source = scan()
    one, other = (Calc(Schema.of(x=e.type), HINTS, source, (e,)) for e in (CITY, ID))
    assert pruned(one, other).physical.types == (row(("id", BIGINT), ("home", row(("city", STRING)))),)


def test_a_reader_of_the_whole_row_keeps_it() -> None:
    source = scan()
    calc = Calc(Schema.of(person=PERSON, id=BIGINT), HINTS, source, (WHOLE, ID))
    assert pruned(calc).physical.types == (PERSON,)
    assert pruned(source).physical.types == (PERSON,)
