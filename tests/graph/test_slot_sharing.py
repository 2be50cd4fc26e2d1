"""Slot sharing groups, their resources, and co-location: what fits together, and who is named if it does not."""

from __future__ import annotations

import graph_fakes as f
import pytest

from flowrun.core.resources import ResourceProfile, ResourceSpec, SlotSharingGroup
from flowrun.errors import PipelineError
from flowrun.graph.job_graph import JobGraph
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph import ExecutionMode, GraphSettings
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import Transformation

MIB = 1 << 20
SMALL, LARGE = ResourceSpec(1.0, 64 * MIB), ResourceSpec(2.0, 64 * MIB)


def build(*sinks: Transformation, settings: GraphSettings | None = None) -> JobGraph:
    return build_job_graph(build_stream_graph("job", sinks, settings))


class TestCoLocation:
    def test_the_key_of_any_operator_is_the_chains(self) -> None:
        (vertex,) = build(f.one("b", f.one("a", f.source()), co_location_key="k")).vertices
        assert vertex.co_location_key == "k"

    def test_two_keys_in_one_chain_are_an_error(self) -> None:
        with pytest.raises(PipelineError, match="'a' and 'b' share a task but have the co-location keys 'k' and 'l'"):
            build(f.one("b", f.one("a", f.source(), co_location_key="k"), co_location_key="l"))

    @pytest.mark.parametrize(
        ("options", "what"),
        [
            ({"parallelism": 2}, "parallelism 1 and 2"),
            ({"slot_sharing_group": "x"}, "slot sharing group default and x"),
        ],
    )
    def test_co_located_vertices_must_fit_side_by_side(self, options: dict[str, object], what: str) -> None:
        a = f.source("a", co_location_key="k")
        b = f.source("b", co_location_key="k", **options)
        with pytest.raises(PipelineError, match=f"'a' and 'b' have the co-location key 'k', but {what}"):
            build(a, b)


class TestResources:
    def test_one_operator_says_it_for_all_of_its_group(self) -> None:
        src = f.source("src", slot_sharing_group="heavy")
        graph = build(f.one("op", src, slot_sharing_group="heavy", slot_resources=SMALL))
        assert graph.slot_sharing_groups == (SlotSharingGroup("heavy", 1.0, 64 * MIB),)

    def test_two_that_say_the_same_agree_even_in_one_chain(self) -> None:
        src = f.source("src", slot_sharing_group="heavy", slot_resources=SMALL)
        graph = build(f.one("op", src, slot_sharing_group="heavy", slot_resources=SMALL))
        assert len(graph.vertices) == 1
        assert len(graph.slot_sharing_groups) == 1

    def test_operators_below_inherit_the_group_with_what_it_has(self) -> None:
        graph = build(f.one("op", f.source("src", slot_sharing_group="heavy", slot_resources=SMALL)))
        assert {v.slot_sharing_group for v in graph.vertices} == {"heavy"}

    def test_two_that_say_different_things_are_an_error_that_names_both(self) -> None:
        src = f.source("src", slot_sharing_group="heavy", slot_resources=SMALL)
        other = f.source("other", slot_sharing_group="heavy", slot_resources=LARGE)
        message = "'src' and 'other' give the slots of group 'heavy' different resources: 1 cpu and 64 MiB, and 2 cpu and 64 MiB"
        with pytest.raises(PipelineError, match=message):
            build(src, other)

    def test_the_settings_say_it_too_and_count_as_much(self) -> None:
        settings = GraphSettings(slot_sharing_groups=(SlotSharingGroup("heavy", cpu=1.0, memory=64 * MIB),))
        src = f.source("src", slot_sharing_group="heavy")
        assert build(src, settings=settings).slot_sharing_groups == settings.slot_sharing_groups
        src.slot_resources = LARGE
        with pytest.raises(
            PipelineError, match="the job's settings and 'src' give the slots of group 'heavy' different"
        ):
            build(src, settings=settings)

    def test_a_slot_has_what_its_operators_ask_for_together(self) -> None:
        src = f.source("src", slot_sharing_group="heavy", slot_resources=SMALL, min_resources=ResourceSpec(0.75))
        op = f.one("op", f.keyed(src, 0), min_resources=ResourceSpec(0.5))
        with pytest.raises(
            PipelineError, match=r"group 'heavy' has 1 cpu and 64 MiB, less than 'src', 'op' need: 1\.25 cpu"
        ):
            build(op)
        src.min_resources = ResourceSpec(memory_bytes=65 * MIB)
        with pytest.raises(PipelineError, match=r"less than 'src', 'op' need: 0\.5 cpu and 65 MiB"):
            build(op)

    def test_in_batch_mode_they_come_one_after_the_other(self) -> None:
        src = f.source("src", slot_sharing_group="heavy", slot_resources=SMALL, min_resources=ResourceSpec(0.75))
        op = f.one("op", f.keyed(src, 0), min_resources=ResourceSpec(0.5))
        assert build(op, settings=GraphSettings(mode=ExecutionMode.BATCH)).slot_sharing_groups
        op.min_resources = ResourceSpec(1.5)
        with pytest.raises(PipelineError, match=r"less than 'op' need: 1\.5 cpu"):
            build(op, settings=GraphSettings(mode=ExecutionMode.BATCH))


def test_resources_are_not_negative() -> None:
    with pytest.raises(PipelineError, match="at least 0"):
        ResourceSpec(-1.0)
    with pytest.raises(PipelineError, match="at least 0"):
        SlotSharingGroup("g", memory=-1)
    with pytest.raises(PipelineError, match="at least 0"):
        ResourceSpec(float("nan"))
    with pytest.raises(PipelineError, match="has no name"):
        SlotSharingGroup("")


def test_cores_add_up_exactly() -> None:
    total = ResourceProfile()
    for _ in range(10):
        total = total.plus(ResourceProfile.of(ResourceSpec(0.1)))
    assert total == ResourceProfile(1000, 0)
    assert ResourceProfile(1000).covers(total)
