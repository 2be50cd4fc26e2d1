"""Every kind of plan node has its place on Spark."""

from __future__ import annotations

from importlib import import_module

import pytest

import flowrun.plan.matching
import flowrun.plan.nodes
import flowrun.plan.relational  # noqa: F401 - all kinds of nodes are known once these are imported
from flowrun.plan.nodes import PlanNode, SideOutput, Sink
from flowrun.plan.relational import Over
from flowrun.spark.translation import HOSTED, NATIVE

pytestmark = pytest.mark.everyday

ELSEWHERE = {
    Sink: "written by flowrun.spark.output",
    SideOutput: "what the node that it belongs to gave beside its rows",
    Over: "recognition turns it into other nodes before anything is translated",
}


def _kinds(kind: type[PlanNode]) -> set[type[PlanNode]]:
    """All that are not only bases of others."""
    below = kind.__subclasses__()
    found = {k for child in below for k in _kinds(child)}
    return found or ({kind} if kind.__module__.startswith("flowrun.") else set())


def test_every_kind_of_node_is_native_or_hosted() -> None:
    assert _kinds(PlanNode) == {*NATIVE, *HOSTED, *ELSEWHERE}
    assert not NATIVE.keys() & HOSTED.keys()


@pytest.mark.parametrize("where", NATIVE.values())
def test_native_translations_are_there(where: str) -> None:
    module, _, function = where.partition(":")
    assert callable(getattr(import_module(f"flowrun.spark.{module}"), function))
