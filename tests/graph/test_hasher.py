"""Operator ids stay what they are while a job is renamed, reordered, rescaled and extended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import graph_fakes as f
import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.errors import PipelineError
from flowrun.graph.hasher import hash_uid, operator_ids
from flowrun.graph.stream_graph import GraphSettings, StreamGraph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import Transformation

OTHER = Schema.of(id=BIGINT)


def build(*sinks: Transformation, **settings: object) -> StreamGraph:
    return build_stream_graph("job", sinks, GraphSettings(**settings))  # type: ignore[arg-type]


def ids(*sinks: Transformation, **settings: object) -> dict[str, str]:
    """Name → operator id; the names of a job are distinct in these tests."""
    graph = build(*sinks, **settings)
    return {graph.node(node_id).name: hashed for node_id, hashed in operator_ids(graph).items()}


def orders(rename: Callable[[str], str] = str, **options: object) -> Transformation:
    src = f.source(rename("orders"))
    split = f.one(rename("split"), src)
    agg = f.one(rename("agg"), f.keyed(f.side(split, f.BIG)), state_keys=(0,), **options)
    return f.sink(rename("out"), agg)


def clicks() -> Transformation:
    return f.sink("clicks out", f.one("sessions", f.keyed(f.source("clicks", schema=OTHER))))


def test_ids_are_32_hex_digits_and_all_different() -> None:
    found = ids(orders(), clicks())
    assert all(len(i) == 32 and int(i, 16) >= 0 for i in found.values())
    assert len(set(found.values())) == len(found) == 7


def test_ids_are_the_same_in_another_process() -> None:
    code = (
        "import graph_fakes as f, test_hasher as t\n"
        "from flowrun.graph.hasher import operator_ids\n"
        "print(sorted(t.ids(t.orders(), t.clicks()).items()))"
    )
    here = Path(__file__).parent
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=here.parent.parent,
        env={"PYTHONPATH": f"{here}:{here.parent.parent}", "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == str(sorted(ids(orders(), clicks()).items()))


def test_building_other_jobs_before_changes_nothing() -> None:
    before = ids(orders())
    for _ in range(3):
        ids(clicks())
    assert ids(orders()) == before


def test_renaming_operators_changes_no_id() -> None:
    renamed = ids(orders(lambda name: f"my {name}"))
    assert {k.removeprefix("my "): v for k, v in renamed.items()} == ids(orders())


def test_reordering_unrelated_pipelines_changes_no_id() -> None:
    assert ids(orders(), clicks()) == ids(clicks(), orders())


def test_adding_an_unrelated_pipeline_changes_no_id() -> None:
    alone = ids(orders())
    together = ids(clicks(), orders())
    assert {k: together[k] for k in alone} == alone


def test_adding_a_reader_further_down_changes_no_id_upstream() -> None:
    src = f.source()
    agg = f.one("agg", f.keyed(src))
    before = ids(f.sink("out", agg))
    after = ids(f.sink("out", agg), f.sink("audit", f.one("extra", f.side(agg, f.LATE))))
    assert {k: after[k] for k in before} == before


def test_rescaling_and_switching_chaining_off_changes_no_id() -> None:
    before = ids(orders())
    assert ids(orders(parallelism=3), parallelism=2) == before
    assert ids(orders(), chaining=False) == before


def test_inserting_an_operator_changes_the_ids_below_it_only() -> None:
    src = f.source()
    before = ids(f.sink("out", f.one("agg", src)))
    after = ids(f.sink("out", f.one("agg", f.one("new", src))))
    assert after["source"] == before["source"]
    assert after["agg"] != before["agg"]
    assert after["out"] != before["out"]


def test_a_uid_pins_the_id_wherever_the_operator_goes() -> None:
    pinned = {"uid": "agg-1"}
    moved = ids(f.sink("out", f.one("agg", f.one("new", f.source()), **pinned)))
    assert moved["agg"] == ids(orders(**pinned))["agg"] == hash_uid("agg-1")


def test_a_uid_also_keeps_what_is_below_it() -> None:
    src = f.source()
    before = ids(f.sink("out", f.one("agg", src, uid="a")))
    after = ids(f.sink("out", f.one("agg", f.one("new", src), uid="a")))
    assert after["out"] == before["out"]


def test_two_branches_of_a_split_are_told_apart_by_their_tags_in_any_order() -> None:
    def pipeline(*, swapped: bool) -> dict[str, str]:
        split = f.one("split", f.source())
        sinks = [f.sink("late", f.side(split, f.LATE)), f.sink("big", f.side(split, f.BIG))]
        return ids(*(reversed(sinks) if swapped else sinks))

    assert pipeline(swapped=False) == pipeline(swapped=True)


def test_operators_alike_from_upstream_are_told_apart_by_what_follows_in_any_order() -> None:
    def pipeline(*, swapped: bool) -> dict[str, str]:
        src = f.source()
        plain = f.sink("plain out", f.one("plain", src))
        windowed = f.sink("window out", f.one("window", f.keyed(f.one("before", src))))
        return ids(*((windowed, plain) if swapped else (plain, windowed)))

    assert pipeline(swapped=False) == pipeline(swapped=True)


def test_twins_are_told_apart_by_their_order() -> None:
    src = f.source()
    found = ids(f.sink("x", f.one("a", src)), f.sink("y", f.one("b", src)))
    assert len(set(found.values())) == 5
    renamed = ids(f.sink("x", f.one("b", src)), f.sink("y", f.one("a", src)))
    assert (renamed["b"], renamed["a"]) == (found["a"], found["b"])


def test_the_inputs_of_a_join_are_not_interchangeable() -> None:
    a, b = f.source("a"), f.source("b", schema=OTHER)
    assert ids(f.two("join", a, b))["join"] != ids(f.two("join", b, a))["join"]


def test_a_duplicate_uid_is_an_error_that_names_both_operators() -> None:
    with pytest.raises(PipelineError, match="'a' and 'b' have the same uid 'x'"):
        ids(f.one("b", f.one("a", f.source(), uid="x"), uid="x"))


def test_a_user_hash_is_taken_as_it_is() -> None:
    given = "00c0ffee" * 4
    assert ids(f.one("a", f.source(), uid="x", user_hash=given))["a"] == given


def test_a_user_hash_must_be_32_hex_digits() -> None:
    with pytest.raises(PipelineError, match="'a' has the user hash 'C0FFEE'; expected 32 hex digits"):
        ids(f.one("a", f.source(), user_hash="C0FFEE"))


def test_a_user_hash_may_be_used_once() -> None:
    given = "00c0ffee" * 4
    with pytest.raises(PipelineError, match="'a' and 'b' have the same operator id"):
        ids(f.one("b", f.one("a", f.source(), user_hash=given), user_hash=given))


def test_these_ids_are_frozen() -> None:
    """A savepoint written by an older flowrun is found by these ids: if this test fails, the hash changed."""
    assert ids(orders()) == {
        "orders": "5a222349b29d09f6a2ec11b2b34c083c",
        "split": "3462d1580ae7d76cd3c06054973c0652",
        "agg": "6b7a7bb1f0ab60010fff13a4576c28b3",
        "out": "2046b217388dc7189209e94a217f6d57",
    }
