"""Which changes each node makes, and what is said to who writes updates where only inserts fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.api.changelog import ChangelogMode
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import FrameUnit, JoinKind, NullOrder, RankFunction, SortKey, TimeDomain
from flowrun.core.types import BIGINT
from flowrun.errors import Location
from flowrun.plan.changelog import changelog_modes, check_changelogs
from flowrun.plan.changelog_nodes import ChangelogNormalize, FromChangelog
from flowrun.plan.conflicts import OnConflict, ResolveConflicts
from flowrun.plan.expressions import AggregateCall, ColumnRef
from flowrun.plan.joins import IntervalJoin, Join, LookupJoin, TemporalJoin
from flowrun.plan.nodes import Calc, NodeHints, Plan, PlanNode, Scan, Sink, TableReference, Union
from flowrun.plan.relational import Deduplicate, Frame, GroupAggregate, Keep, OverAggregate, Rank, TemporalSort
from tests.plan.plans import ORDERS, calc, scan

APPEND, UPDATE, RETRACT, UPSERT = ChangelogMode
HINTS = NodeHints()


def grouped(node: PlanNode, keys: tuple[int, ...] = (1,), *, distinct: bool = False, **hints: object) -> GroupAggregate:
    call = () if distinct else (AggregateCall("COUNT", (), BIGINT, "n"),)
    schema = Schema((*(node.schema.fields[k] for k in keys), *(Field(a.name, a.type) for a in call)))
    return GroupAggregate(schema, NodeHints(**hints), node, keys, call)  # type: ignore[arg-type]


def changed_by_file(tmp_path: Path) -> Scan:
    """A source whose format carries changes."""
    table = TableReference("changes", "filesystem", {"path": str(tmp_path)}, format="debezium-json")
    columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(ORDERS))
    return Scan(ORDERS, NodeHints(name="changes"), table, ORDERS, columns)


def joined(kind: JoinKind, left: PlanNode, right: PlanNode) -> Join:
    names = [f"r_{n}" for n in right.schema.names]
    fields = () if kind.left_only else tuple(Field(n, t) for n, t in zip(names, right.schema.types, strict=True))
    return Join(Schema((*left.schema.fields, *fields)), HINTS, left, right, kind, (0,), (0,))


def ranked(node: PlanNode, *, order: bool = True) -> Rank:
    keys = (SortKey(2, True, NullOrder.LAST),) if order else ()
    return Rank(node.schema, HINTS, node, (), keys, RankFunction.ROW_NUMBER, 1, 3, rank_column=False)


def kept(node: PlanNode, keep: Keep, domain: TimeDomain) -> Deduplicate:
    return Deduplicate(node.schema, HINTS, node, (1,), 4, keep, domain)


def sunk(node: PlanNode, connector: str = "blackhole", **table: object) -> Sink:
    options = table.pop("options", {})
    location = Location("q.sql", 9, 13)
    reference = TableReference("out", connector, options, **table)  # type: ignore[arg-type]
    return Sink(node.schema, NodeHints(name="out", location=location), node, reference)


def mode(node: PlanNode) -> ChangelogMode:
    return changelog_modes(Plan("p", (sunk(node),)))[id(node)]


def test_sources_insert_unless_their_format_carries_changes(tmp_path: Path) -> None:
    assert mode(scan()) is APPEND
    assert mode(changed_by_file(tmp_path)) is RETRACT


def test_aggregates_update_and_delete_over_what_changes() -> None:
    once = grouped(scan())
    assert mode(once) is UPDATE
    assert mode(grouped(once, (0,))) is RETRACT
    assert mode(grouped(scan(), distinct=True)) is APPEND
    assert mode(grouped(once, (1,), distinct=True)) is RETRACT


def test_running_aggregates_that_are_corrected_change_over_inserts_too() -> None:
    call = AggregateCall("LEAD", (ColumnRef(BIGINT, 0, "id"),), BIGINT, "following")
    schema = Schema((*ORDERS, Field("following", BIGINT)))
    order = (SortKey(0, False, NullOrder.LAST),)
    over = OverAggregate(schema, HINTS, scan(), (), order, TimeDomain.EVENT, Frame(FrameUnit.ROWS), (call,))
    assert mode(over) is APPEND
    assert mode(replace(over, corrects=True)) is RETRACT


def test_a_filter_over_updates_deletes_a_projection_does_not() -> None:
    once = grouped(scan())
    assert mode(calc(once, "n")) is UPDATE
    assert mode(calc(once, "n", where="n > 1")) is RETRACT
    assert mode(calc(scan(), "id", where="id > 1")) is APPEND


@pytest.mark.parametrize("kind", list(JoinKind))
def test_joins_of_inserts_change_where_a_match_may_still_come(kind: JoinKind) -> None:
    expected = APPEND if kind in (JoinKind.INNER, JoinKind.SEMI) else RETRACT
    assert mode(joined(kind, scan(), scan(name="b"))) is expected
    updating = grouped(scan(name="c"))
    assert mode(joined(kind, calc(updating, "n"), scan(name="b"))) is RETRACT


def test_top_n_and_deduplication() -> None:
    assert mode(ranked(scan())) is RETRACT
    assert mode(ranked(scan(), order=False)) is APPEND
    assert mode(kept(scan(), Keep.FIRST, TimeDomain.PROCESSING)) is APPEND
    assert mode(kept(scan(), Keep.FIRST, TimeDomain.EVENT)) is APPEND
    assert mode(kept(scan(), Keep.LAST, TimeDomain.EVENT)) is UPDATE
    assert mode(kept(scan(), Keep.LAST, TimeDomain.PROCESSING)) is UPDATE


def test_a_union_is_as_bad_as_its_worst_member() -> None:
    once = calc(grouped(scan()), "n AS id")
    plain = calc(scan(), "id")
    assert mode(Union(plain.schema, HINTS, (plain, once))) is UPDATE


def test_lookups_pass_changes_on_and_temporal_joins_read_them_on_the_right(tmp_path: Path) -> None:
    side = TableReference("side", "filesystem", {"path": str(tmp_path)}, format="csv")
    once = grouped(scan())
    lookup = LookupJoin(once.schema, HINTS, once, JoinKind.LEFT, side, Schema.of(k=BIGINT), (), ())
    assert mode(lookup) is RETRACT
    left, right = scan(), kept(scan(name="rates"), Keep.LAST, TimeDomain.EVENT)
    temporal = TemporalJoin(left.schema, HINTS, left, right, JoinKind.LEFT, (1,), (1,), 4, 4)
    assert mode(temporal) is APPEND
    assert check_changelogs(Plan("p", (sunk(temporal),))) == []


def problems(*sinks: Sink) -> list[str]:
    return [d.render() for d in check_changelogs(Plan("p", sinks))]


def test_a_sink_of_inserts_names_who_updates_it_and_what_to_do(tmp_path: Path) -> None:
    node = calc(grouped(scan(), location=Location("q.sql", 3, 5)), "n")
    found = problems(sunk(node, "filesystem", options={"path": str(tmp_path)}, format="json"))
    assert found == [
        "q.sql:9:13: error: sink 'out' (connector 'filesystem' with format 'json') takes inserts only, but gets updates from "
        "GROUP BY user at q.sql:3:5\n"
        "  hint: use a format that carries changes ('format' = 'debezium-json' or 'canal-json'); or a PRIMARY KEY (…) NOT ENFORCED "
        "on the sink, which then keeps one row a key; or a window (TUMBLE, HOP, CUMULATE, SESSION), whose results are final"
    ]


@pytest.mark.parametrize(
    "table",
    [{"format": "debezium-json"}, {"format": "canal-json"}, {"format": "json", "primary_key": ("user",)}],
    ids=["debezium", "canal", "key"],
)
def test_sinks_that_take_changes_are_fine(tmp_path: Path, table: dict[str, object]) -> None:
    assert problems(sunk(grouped(scan()), "filesystem", options={"path": str(tmp_path)}, **table)) == []
    assert problems(sunk(grouped(scan()), "print")) == []


def test_upserts_pass_filters_as_upserts_and_become_whole_changes_by_key() -> None:
    rows = scan()
    said = FromChangelog(rows.schema, HINTS, rows, 0, (("u", 2), ("d", 3)), keys=(1,), upsert=True)
    assert mode(said) is UPSERT
    assert UPSERT.kinds == "[+I, +U, -D]"
    chosen = calc(said, "user", where="user IS NOT NULL")
    assert mode(chosen) is UPSERT
    assert mode(ChangelogNormalize(chosen.schema, HINTS, chosen, (0,))) is RETRACT


def test_rows_that_only_come_are_never_taken_back_by_conflicts() -> None:
    for action in OnConflict:
        assert mode(ResolveConflicts(ORDERS, HINTS, scan(), (0,), action, "out")) is APPEND
        counted = grouped(scan())
        assert mode(ResolveConflicts(counted.schema, HINTS, counted, (1,), action, "out")) is RETRACT


def test_a_source_that_changes_is_named_with_its_format(tmp_path: Path) -> None:
    copied = calc(changed_by_file(tmp_path), "id")
    found = problems(sunk(copied, "filesystem", options={"path": str(tmp_path)}, format="csv"))
    assert "gets updates and deletes from source 'changes' (format 'debezium-json')" in found[0]


def test_operators_that_need_rows_that_never_change_say_so() -> None:
    once = calc(grouped(scan()), "user", "n AS id")
    plain = scan(name="b")
    interval = IntervalJoin(
        Schema((*once.schema.fields, *(Field(f"r_{f.name}", f.type) for f in plain.schema))),
        NodeHints(name="near", location=Location("q.sql", 4, 1)),
        once,
        plain,
        JoinKind.INNER,
        (1,),
        (0,),
        1,
        4,
        0,
        1000,
    )
    found = problems(sunk(interval))
    assert found[0].startswith(
        "q.sql:4:1: error: an interval join 'near' needs rows that never change, but gets updates from GROUP BY"
    )
    assert "a regular join takes changes" in found[0]
    sort = TemporalSort(once.schema, HINTS, once, (SortKey(1),), TimeDomain.EVENT)
    assert "ORDER BY a time attribute needs rows that never change" in problems(sunk(sort))[0]


def test_every_problem_is_told_once(tmp_path: Path) -> None:
    node: Calc = calc(grouped(scan()), "n")
    to_json = {"options": {"path": str(tmp_path)}, "format": "json"}
    assert len(problems(sunk(node, "filesystem", **to_json), sunk(node, "filesystem", **to_json), sunk(node))) == 2
