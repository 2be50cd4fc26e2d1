"""The savepoint rules: what may change in a pipeline between a savepoint and its resumption, and what is said about the rest."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from flowrun.api.state import DELETED_COLUMN, keyed_schema
from flowrun.core.elements import CheckpointKind, RecordBatch, Watermark
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.partitioner import (
    BroadcastPartitioner,
    RebalancePartitioner,
    RescalePartitioner,
)
from flowrun.runtime.checkpoint.compatibility import Comparison, StateChange, compare
from flowrun.state.checkpoints import CheckpointMetadata, InFlight
from tests import savepoint_builders as b


def shop(**options: object) -> JobGraph:
    """orders → per_user → out, with uids."""
    orders = b.source(uid="orders")
    return b.job(b.sink(b.counted(orders, uid="per_user"), uid="out"), **options)


def changes(comparison: Comparison) -> dict[str, str]:
    return {o.name: o.change.value for o in comparison.operators}


def problems(metadata: CheckpointMetadata, graph: JobGraph) -> list[str]:
    return [p.message for p in compare(metadata, graph).all_problems]


# ---- what may change


def test_the_same_pipeline_keeps_everything() -> None:
    comparison = compare(b.savepoint(shop()), shop())
    comparison.check(allow_non_restored_state=False)
    assert changes(comparison) == {"orders": "kept", "per_user": "kept", "out": "kept"}


def test_an_operator_without_state_in_the_savepoint_is_stateless_or_starts_empty() -> None:
    orders = b.source(uid="orders")
    graph = b.job(b.sink(b.step("clean", b.counted(orders, uid="per_user")), uid="out"))
    assert changes(compare(b.savepoint(graph, keyed={}), graph)) == {
        "orders": "kept",
        "per_user": "new",
        "clean": "stateless",
        "out": "kept",
    }


def test_steps_may_be_reordered_when_they_have_uids() -> None:
    def pipeline(swapped: bool) -> JobGraph:
        names = ["clean", "mask"]
        rows = b.source(uid="orders")
        for name in reversed(names) if swapped else names:
            rows = b.step(name, rows, uid=name)
        one = b.counted(rows, "per_user", uid="per_user")
        two = b.counted(rows, "per_item", uid="per_item")
        sinks = [b.sink(one, "a", uid="a"), b.sink(two, "b", uid="b")]
        return b.job(*(reversed(sinks) if swapped else sinks))

    taken = b.savepoint(pipeline(False), {n: {"counts": b.COUNTS} for n in ("per_user", "per_item")})
    comparison = compare(taken, pipeline(True))
    comparison.check(allow_non_restored_state=False)
    assert changes(comparison)["per_user"] == changes(comparison)["per_item"] == "kept"


def test_the_order_of_outputs_may_change_without_uids() -> None:
    def pipeline(swapped: bool) -> JobGraph:
        orders = b.source()
        sinks = [b.sink(b.counted(orders), "out"), b.sink(b.step("raw", orders), "copy")]
        return b.job(*(reversed(sinks) if swapped else sinks))

    comparison = compare(b.savepoint(pipeline(False)), pipeline(True))
    comparison.check(allow_non_restored_state=False)
    assert changes(comparison)["per_user"] == "kept"


def test_a_stateless_step_may_be_added_before_an_operator_with_a_uid() -> None:
    orders = b.source(uid="orders")
    changed = b.job(b.sink(b.counted(b.step("clean", orders), uid="per_user"), uid="out"))
    comparison = compare(b.savepoint(shop()), changed)
    comparison.check(allow_non_restored_state=False)
    assert changes(comparison) == {"orders": "kept", "clean": "stateless", "per_user": "kept", "out": "kept"}


def test_a_stateless_step_may_be_removed() -> None:
    orders = b.source(uid="orders")
    before = b.job(b.sink(b.counted(b.step("clean", orders), uid="per_user"), uid="out"))
    comparison = compare(b.savepoint(before), shop())
    comparison.check(allow_non_restored_state=False)
    assert "clean" not in changes(comparison)


def test_a_new_stateful_operator_and_a_new_sink_start_empty() -> None:
    orders = b.source(uid="orders")
    one = b.sink(b.counted(orders, uid="per_user"), uid="out")
    two = b.sink(b.counted(orders, "per_item", uid="per_item"), "items")
    comparison = compare(b.savepoint(shop()), b.job(one, two))
    comparison.check(allow_non_restored_state=False)
    assert changes(comparison)["per_item"] == changes(comparison)["items"] == "new"


def test_a_rename_is_noted_and_harmless() -> None:
    orders = b.source(uid="orders")
    renamed = b.job(b.sink(b.counted(orders, "by_user", uid="per_user"), uid="out"))
    comparison = compare(b.savepoint(shop()), renamed)
    comparison.check(allow_non_restored_state=False)
    (operator,) = (o for o in comparison.operators if o.name == "by_user")
    assert operator.notes == ("was called 'per_user'",)


def test_what_will_be_run_can_be_pickled() -> None:
    comparison = compare(b.savepoint(shop()), shop())
    assert pickle.loads(pickle.dumps(comparison.job_graph)) == comparison.job_graph


# ---- state that nobody takes


def test_a_removed_stateful_operator_is_an_error_unless_allowed() -> None:
    orders = b.source(uid="orders")
    comparison = compare(b.savepoint(shop()), b.job(b.sink(b.step("all", orders), uid="out")))
    assert changes(comparison)["per_user"] == "dropped"
    with pytest.raises(StateError) as failed:
        comparison.check(allow_non_restored_state=False)
    assert str(failed.value) == (
        "'shop' cannot go on from savepoint 7 of 'shop': a problem\n"
        "  - 'per_user' (uid 'per_user') has state in the savepoint, but the pipeline has no such operator any more\n"
        "    hint: put it back, or leave its state behind with --allow-non-restored-state"
    )
    comparison.check(allow_non_restored_state=True)
    assert comparison.verdict(True) == "can resume; leaves the state of 1 operator behind"


def test_a_removed_sink_names_the_results_that_would_be_lost() -> None:
    orders = b.source(uid="orders")
    before = b.job(b.sink(orders, uid="out"), b.sink(orders, "old", uid="old"))
    taken = b.savepoint(before, {}, {"old": {"committables": b.rows(3)}})
    (message,) = problems(taken, b.job(b.sink(orders, uid="out")))
    assert message.endswith("; 3 results that it wrote but had not committed would be lost")


def test_a_removed_sink_with_nothing_to_commit_is_no_loss() -> None:
    orders = b.source(uid="orders")
    before = b.job(b.sink(orders, uid="out"), b.sink(orders, "old", uid="old"))
    taken = b.savepoint(before, {}, {"old": {"committables": b.rows(0)}})
    compare(taken, b.job(b.sink(orders, uid="out"))).check(allow_non_restored_state=False)


def test_a_removed_source_is_a_loss_of_its_positions() -> None:
    taken = b.savepoint(b.job(b.sink(b.source(uid="orders"))))
    assert any("'orders' (uid 'orders')" in m for m in problems(taken, b.job(b.sink(b.source("other", uid="other")))))


def test_a_changed_uid_is_recognised_by_the_name() -> None:
    orders = b.source(uid="orders")
    changed = b.job(b.sink(b.counted(orders, uid="per_user_v2"), uid="out"))
    comparison = compare(b.savepoint(shop()), changed)
    (problem,) = comparison.all_problems
    assert problem.hint is not None
    assert "if 'per_user' is to go on from it, give it the uid 'per_user'" in problem.hint
    new = next(o for o in comparison.operators if o.change is StateChange.NEW)
    assert new.notes == (
        "looks like the dropped 'per_user' (uid 'per_user'): if 'per_user' is to go on from it, give it the uid 'per_user'",
    )


def test_an_operator_of_nearly_the_same_name_is_suggested() -> None:
    orders = b.source(uid="orders")
    changed = b.job(b.sink(b.counted(orders, "per_users", uid="per_users"), uid="out"))
    (problem,) = compare(b.savepoint(shop()), changed).all_problems
    assert problem.hint is not None
    assert "if 'per_users' is to go on from it, give it the uid 'per_user'" in problem.hint


def test_without_uids_a_step_upstream_moves_state_and_the_message_says_why() -> None:
    def pipeline(clean: bool) -> JobGraph:
        rows = b.source(uid="orders")
        return b.job(b.sink(b.counted(b.step("clean", rows) if clean else rows), uid="out"))

    (problem,) = compare(b.savepoint(pipeline(False)), pipeline(True)).all_problems
    assert "the state of 'clean' (no uid: found by structure) does not fit: it had keyed state" in problem.message
    assert problem.hint is not None
    assert problem.hint.startswith(
        "it is where 'per_user' was: what is upstream of an operator without a uid must stay"
    )
    (problem,) = compare(b.savepoint(pipeline(True)), pipeline(False)).all_problems
    assert "'per_user' (no uid: found by structure) has state in the savepoint" in problem.message
    assert problem.hint is not None
    assert problem.hint.startswith("if 'per_user' is to go on from it, put it back where it was")


# ---- parallelism and key groups


@pytest.mark.parametrize("parallelism", [1, 2, 3, 128])
def test_the_parallelism_may_change_within_the_key_groups(parallelism: int) -> None:
    comparison = compare(b.savepoint(shop()), shop(parallelism=parallelism))
    comparison.check(allow_non_restored_state=False)
    per_user = next(o for o in comparison.operators if o.name == "per_user")
    shown = "2" if parallelism == 2 else f"2 -> {parallelism}"
    assert per_user.layout_text == f"parallelism {shown}, max parallelism 128"


def test_the_number_of_key_groups_is_the_savepoints_unless_it_is_set() -> None:
    taken = b.savepoint(shop(parallelism=2))
    wide = shop(parallelism=100)
    assert {v.max_parallelism for v in wide.vertices} == {256}
    comparison = compare(taken, wide)
    comparison.check(allow_non_restored_state=False)
    keyed = next(v for v in comparison.job_graph.vertices if v.operators[0].name == "per_user")
    assert keyed.max_parallelism == 128


def test_another_explicit_max_parallelism_names_both_numbers() -> None:
    comparison = compare(b.savepoint(shop()), shop(max_parallelism=256))
    assert changes(comparison)["per_user"] == "incompatible"
    (problem,) = comparison.all_problems
    assert problem.message == (
        "the state of 'per_user' has max parallelism 128, the pipeline sets 256: keys would be looked for in other key groups"
    )
    assert problem.hint == "set max_parallelism to 128, or leave it out"


def test_the_same_explicit_max_parallelism_is_fine() -> None:
    compare(b.savepoint(shop(max_parallelism=16)), shop(max_parallelism=16)).check(allow_non_restored_state=False)


def test_more_subtasks_than_key_groups_are_refused() -> None:
    (message,) = problems(b.savepoint(shop(max_parallelism=4)), shop(parallelism=5))
    assert message == (
        "'per_user' has parallelism 5, but its state has max parallelism 4: more subtasks than key groups"
    )


def test_sources_and_sinks_have_no_key_groups() -> None:
    def pipeline(max_parallelism: int) -> JobGraph:
        return b.job(b.sink(b.source(uid="orders"), uid="out"), max_parallelism=max_parallelism)

    taken = b.savepoint(pipeline(16), {}, {"orders": {"splits": b.rows(split_id=["a", "b"], position=["{}", "{}"])}})
    compare(taken, pipeline(32)).check(allow_non_restored_state=False)


# ---- columns of state


def restored_with(tables: dict[str, pa.Schema], saved: dict[str, pa.Schema]) -> Comparison:
    orders = b.source(uid="orders")
    graph = b.job(b.sink(b.counted(orders, uid="per_user", factory=b.Counting(tables=tables)), uid="out"))
    return compare(b.savepoint(shop(), {"per_user": saved}), graph)


USER = pa.field("user_id", pa.string())


def test_added_nullable_columns_migrate() -> None:
    wider = keyed_schema([USER], [pa.field("n", pa.int64()), pa.field("total", pa.float64())])
    comparison = restored_with({"counts": wider}, {"counts": b.COUNTS})
    comparison.check(allow_non_restored_state=False)
    assert changes(comparison)["per_user"] == "changed"
    (operator,) = (o for o in comparison.operators if o.additions)
    assert operator.additions == ("counts: column 'total' double is added, NULL in what is there",)


def test_a_field_inside_a_row_may_be_added() -> None:
    before = keyed_schema([USER], [pa.field("v", pa.struct([("a", pa.int64())]))])
    after = keyed_schema([USER], [pa.field("v", pa.struct([("a", pa.int64()), ("b", pa.string())]))])
    comparison = restored_with({"counts": after}, {"counts": before})
    comparison.check(allow_non_restored_state=False)
    (operator,) = (o for o in comparison.operators if o.additions)
    assert "column 'v' becomes struct<a: int64, b: string>" in operator.additions[0]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([pa.field("n", pa.string())], "counts: column 'n' was int64, is string now"),
        ([pa.field("m", pa.int64())], "counts: column 'n' int64 was removed"),
        (
            [pa.field("n", pa.int64()), pa.field("x", pa.int64(), nullable=False)],
            "counts: column 'x' int64 was added but may not be NULL",
        ),
    ],
)
def test_other_changes_of_columns_are_listed(after: list[pa.Field], said: str) -> None:
    comparison = restored_with({"counts": keyed_schema([USER], after)}, {"counts": b.COUNTS})
    assert changes(comparison)["per_user"] == "incompatible"
    assert next(p.message for p in comparison.all_problems) == (
        f"the state of 'per_user' (uid 'per_user') does not fit: {said}"
    )
    with pytest.raises(StateError):
        comparison.check(allow_non_restored_state=True)


def test_an_added_key_column_is_no_added_nullable_column() -> None:
    keys = [USER, pa.field("item", pa.string())]
    comparison = restored_with({"counts": keyed_schema(keys, [pa.field("n", pa.int64())])}, {"counts": b.COUNTS})
    (problem,) = comparison.all_problems
    assert problem.message.endswith("counts: the key columns were user_id, are user_id, item now")


def test_a_table_that_is_not_kept_any_more_is_refused_unless_it_is_empty() -> None:
    (problem,) = restored_with({"other": b.COUNTS}, {"counts": b.COUNTS}).all_problems
    assert problem.message.endswith("does not fit: table 'counts' is not kept any more")
    metadata = b.savepoint(shop())
    saved = next(o for o in metadata.operators.values() if o.name == "per_user")
    empty = {
        i: replace(s, keyed={"counts": b.table(rows=0)}, operator={"x": b.rows(1)}) for i, s in saved.subtasks.items()
    }
    operators = {**metadata.operators, saved.operator_id: replace(saved, subtasks=empty)}
    orders = b.source(uid="orders")
    graph = b.job(b.sink(b.counted(orders, uid="per_user", factory=b.Counting(tables={"other": b.COUNTS})), uid="out"))
    compare(replace(metadata, operators=operators), graph).check(allow_non_restored_state=False)


def test_a_new_table_starts_empty() -> None:
    comparison = restored_with({"counts": b.COUNTS, "timers": b.COUNTS}, {"counts": b.COUNTS})
    comparison.check(allow_non_restored_state=False)
    assert changes(comparison)["per_user"] == "kept"


def test_the_mark_of_deleted_keys_is_no_column_of_the_operator() -> None:
    log = b.COUNTS.append(pa.field(DELETED_COLUMN, pa.bool_()))
    comparison = restored_with({"counts": b.COUNTS}, {"counts": log})
    comparison.check(allow_non_restored_state=False)
    assert changes(comparison)["per_user"] == "kept"


def test_keyed_state_of_an_operator_that_keeps_none_now_is_refused() -> None:
    orders = b.source(uid="orders")
    changed = b.job(b.sink(b.step("per_user", orders, uid="per_user"), uid="out"))
    (message,) = problems(b.savepoint(shop()), changed)
    assert message.endswith("does not fit: it had keyed state ('counts'), and keeps none now")


def test_a_keyed_operator_that_does_not_describe_its_state_is_checked_later_and_says_so() -> None:
    orders = b.source(uid="orders")
    changed = b.job(b.sink(b.counted(orders, uid="per_user", factory=b.Plain()), uid="out"))
    comparison = compare(b.savepoint(shop()), changed)
    comparison.check(allow_non_restored_state=False)
    per_user = next(o for o in comparison.operators if o.name == "per_user")
    assert "it does not say which state it keeps" in per_user.notes[0]


def test_a_uid_that_moved_from_a_source_or_sink_to_something_else_is_refused() -> None:
    orders = b.source(uid="orders")
    taken = b.savepoint(b.job(b.sink(orders, uid="out")), {}, {"out": {"committables": b.rows(1)}})
    moved = b.job(b.sink(b.step("clean", b.step("mask", b.source("other"), uid="orders"), uid="out"), "new"))
    found = problems(taken, moved)
    assert any(m.endswith("it was a source, and is none now") for m in found)
    assert any(m.endswith("it was a sink with results that are not committed yet, and is none now") for m in found)


# ---- the end of inputs, drained jobs


def notes(comparison: Comparison) -> dict[str, tuple[str, ...]]:
    return {o.name: o.notes for o in comparison.operators}


def test_an_operator_that_had_ended_stays_ended_when_nothing_comes_for_it() -> None:
    comparison = compare(b.savepoint(shop(), {}, enumerators=[], finished=["orders", "per_user"]), shop())
    comparison.check(allow_non_restored_state=False)
    assert changes(comparison) == {"orders": "kept", "per_user": "kept", "out": "kept"}
    assert notes(comparison)["orders"] == ("it had come to its end: it is not run again",)


def test_an_operator_that_had_ended_runs_again_for_a_new_input() -> None:
    more = b.source("more", uid="more")
    both = b.t.UnionTransformation(name="both", schema=b.ROWS, members=(b.source(uid="orders"), more))
    changed = b.job(b.sink(b.counted(both, uid="per_user"), uid="out"))
    comparison = compare(b.savepoint(shop(), finished=["orders", "per_user", "out"]), changed)
    comparison.check(allow_non_restored_state=False)
    assert notes(comparison)["orders"] == ("it had come to its end: it is not run again",)
    assert notes(comparison)["per_user"] == ("it had come to its end: it runs again, for rows that are new to it",)


def test_a_source_that_had_ended_must_not_start_over_with_operators_that_had_not() -> None:
    def pipeline(parallelism: int) -> JobGraph:
        return b.job(b.sink(b.source(uid="orders", parallelism=parallelism), uid="out", parallelism=2))

    apart, together = pipeline(1), pipeline(2)
    assert (len(apart.vertices), len(together.vertices)) == (2, 1)
    taken = b.savepoint(apart, {}, finished=["orders"])
    compare(taken, apart).check(allow_non_restored_state=False)
    (problem,) = compare(taken, together).all_problems
    assert problem.message == (
        "'orders' had been read to its end, but shares a task with operators that go on ('out'): it would be read again "
        "from its beginning"
    )


def test_a_new_step_below_an_ended_source_is_ended_too() -> None:
    orders = b.source(uid="orders")
    changed = b.job(b.sink(b.counted(b.step("clean", orders), uid="per_user"), uid="out"))
    comparison = compare(b.savepoint(shop(), finished=["orders", "per_user", "out"]), changed)
    comparison.check(allow_non_restored_state=False)
    assert notes(comparison)["per_user"] == ("it had come to its end: it is not run again",)


def test_a_drained_savepoint_and_one_of_another_pipeline_are_warned_about() -> None:
    comparison = compare(b.savepoint(shop(), drained=True), shop(name="store"))
    comparison.check(allow_non_restored_state=False)
    assert comparison.warnings[0] == "it was taken of 'shop', this pipeline is 'store'"
    assert "drained before this savepoint" in comparison.warnings[1]


# ---- rows in flight


@dataclass(frozen=True)
class Pick:
    def __call__(self, batch: RecordBatch, channels: int) -> object:
        raise AssertionError("nothing is run here")


def exchange(partitioner: object, parallelism: int = 2, **options: object) -> JobGraph:
    """orders ⇢ count → out over one exchange."""
    orders = b.source(uid="orders", parallelism=parallelism)
    counted = b.step(
        "count", b.sent(orders, partitioner), uid="count", chaining=b.ChainingStrategy.NEVER, parallelism=parallelism
    )
    return b.job(b.sink(counted, uid="out", **options), parallelism=parallelism)


def in_flight(graph: JobGraph, columns: Schema = b.ROWS, rows: int = 3) -> CheckpointMetadata:
    data = pa.RecordBatch.from_pylist([{}] * rows, schema=columns.arrow)
    data_set = graph.vertices[0].results[0].data_set_id
    held = InFlight(data_set, 0, 1, True, (RecordBatch(data), Watermark(5)))
    return b.savepoint(graph, {}, in_flight=[held], kind=CheckpointKind.CHECKPOINT)


def test_rows_in_flight_may_go_to_another_parallelism() -> None:
    partitioner = b.KeyGroupPartitioner((0,))
    compare(in_flight(exchange(partitioner)), exchange(partitioner, 3)).check(allow_non_restored_state=False)


def test_rows_in_flight_need_their_exchange() -> None:
    taken = in_flight(exchange(RebalancePartitioner()))
    without = b.job(b.sink(b.source(uid="orders"), uid="out"))
    (problem,) = compare(taken, without).all_problems
    assert problem.message == (
        "3 rows were in flight from 'orders' to 'count', an exchange that the pipeline does not have any more"
    )


def test_rows_in_flight_may_be_inside_a_chain_afterwards() -> None:
    taken = in_flight(exchange(RebalancePartitioner()))
    chained = b.job(b.sink(b.step("count", b.source(uid="orders"), uid="count"), uid="out"))
    assert compare(taken, chained).all_problems == ()


def test_rows_in_flight_need_the_same_partitioner_and_columns() -> None:
    taken = in_flight(exchange(RebalancePartitioner()))
    (problem,) = compare(taken, exchange(RescalePartitioner())).all_problems
    assert problem.message.endswith("on a REBALANCE exchange; it is RESCALE now")
    other = in_flight(exchange(RebalancePartitioner()), Schema.of(user_id=STRING, price=BIGINT))
    (problem,) = compare(other, exchange(RebalancePartitioner())).all_problems
    assert problem.message.endswith(
        "with the columns user_id string, price int64; they are user_id string, amount int64 now"
    )


def test_watermarks_in_flight_are_no_rows() -> None:
    taken = in_flight(exchange(BroadcastPartitioner()), rows=0)
    compare(taken, exchange(BroadcastPartitioner(), 3)).check(allow_non_restored_state=False)


def keyed_and_broadcast(parallelism: int) -> JobGraph:
    """orders ⇢ by key, rules ⇢ to all → met → out."""
    orders, rules = b.source(uid="orders", parallelism=1), b.source("rules", uid="rules", parallelism=1)
    met = b.t.TwoInputTransformation(
        name="met",
        schema=b.ROWS,
        left=b.sent(orders, b.KeyGroupPartitioner((0,))),
        right=b.sent(rules, BroadcastPartitioner()),
        factory=b.Plain(),
        uid="met",
        parallelism=parallelism,
    )
    return b.job(b.sink(met, uid="out", parallelism=parallelism), parallelism=parallelism)


@pytest.mark.parametrize(("unseen_by", "problems"), [((1,), 1), ((0, 1), 0)])
def test_broadcast_rows_in_flight_reach_all_keys_or_are_refused(unseen_by: tuple[int, ...], problems: int) -> None:
    graph = keyed_and_broadcast(2)
    (data_set,) = (r.data_set_id for v in graph.vertices for r in v.results if "rules" in v.name)
    data = RecordBatch(pa.RecordBatch.from_pylist([{}] * 3, schema=b.ROWS.arrow))
    held = [InFlight(data_set, 0, consumer, True, (data,)) for consumer in unseen_by]
    taken = b.savepoint(graph, {}, in_flight=held, kind=CheckpointKind.CHECKPOINT, enumerators=("orders", "rules"))
    assert compare(taken, keyed_and_broadcast(2)).all_problems == ()
    found = compare(taken, keyed_and_broadcast(3)).all_problems
    assert len(found) == problems
    assert all(
        "broadcast rows that some of 2 subtasks had processed for their keys: at parallelism 3 keys would miss them"
        in problem.message
        for problem in found
    )


# ---- what is shown


def test_the_text_of_a_comparison() -> None:
    orders = b.source(uid="orders")
    wider = keyed_schema([USER], [pa.field("n", pa.int64()), pa.field("total", pa.float64())])
    kept = b.counted(orders, uid="per_user", factory=b.Counting(tables={"counts": wider}))
    before = b.job(
        b.sink(b.counted(orders, uid="per_user"), uid="out"),
        b.sink(b.counted(orders, "per_item", uid="per_item"), "items", uid="items"),
    )
    taken = b.savepoint(
        before,
        {"per_user": {"counts": b.COUNTS}, "per_item": {"counts": b.COUNTS}},
        {"orders": {"splits": b.rows(split_id=["a"], position=["{}"])}},
    )
    comparison = compare(taken, b.job(b.sink(kept, uid="out"), parallelism=3))
    assert "\n".join(comparison.lines()) == (
        "savepoint 7 of 'shop'\n"
        "  kept          orders    uid orders    parallelism 2 -> 3; splits 1 row\n"
        "  changed       per_user  uid per_user  parallelism 2 -> 3, max parallelism 128; counts 2.0 kB\n"
        "      + counts: column 'total' double is added, NULL in what is there\n"
        "  kept          out       uid out       parallelism 2 -> 3\n"
        "  dropped       per_item  uid per_item  parallelism 2, max parallelism 128; counts 2.0 kB\n"
        "      error: 'per_item' (uid 'per_item') has state in the savepoint, but the pipeline has no such operator any more\n"
        "        hint: put it back, or leave its state behind with --allow-non-restored-state\n"
        "cannot resume: 1 problem"
    )
    assert comparison.lines(allow_non_restored_state=True)[-1] == "can resume; leaves the state of 1 operator behind"


def test_all_problems_come_in_one_message() -> None:
    orders = b.source(uid="orders")
    changed = b.job(b.sink(b.counted(orders, uid="other"), uid="out"), max_parallelism=64)
    metadata = b.savepoint(
        b.job(
            b.sink(b.counted(orders, uid="per_user"), uid="out"),
            b.sink(b.counted(orders, "per_item", uid="per_item"), "i"),
        ),
        {"per_user": {"counts": b.COUNTS}, "per_item": {"counts": b.COUNTS}},
    )
    with pytest.raises(StateError, match="2 problems"):
        compare(metadata, changed).check(allow_non_restored_state=False)


def test_what_is_not_known_of_the_old_pipeline_does_not_matter() -> None:
    compare(b.savepoint(shop(), job_graph=None), shop()).check(allow_non_restored_state=False)
    odd = {"vertices": [{"operators": [{"state": {"t": 3}}], "inputs": [{"id": 9}]}, 7]}
    compare(b.savepoint(shop(), job_graph=odd), shop()).check(allow_non_restored_state=False)
