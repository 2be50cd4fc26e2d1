"""What nodes say of their fields, and what is derived from it."""

from __future__ import annotations

import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.plan.description import Each, Passed, input_node, node, parameter, part, positions
from flowrun.plan.nodes import NodeHints, PlanNode
from flowrun.plan.rewrites.traversal import with_inputs
from tests.plan.plans import scan


def test_a_field_that_does_not_say_what_it_is_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Silent\.words does not say what it is"):

        @node()
        class Silent(PlanNode):
            input: PlanNode = input_node()
            words: str = ""


def test_a_part_with_such_a_field_is_refused_too() -> None:
    with pytest.raises(TypeError, match=r"Piece\.words does not say what it is"):

        @part
        class Piece:
            words: str = ""


def test_a_description_names_fields_of_the_node() -> None:
    with pytest.raises(TypeError, match="Lost describes inptu, rows, which it has not"):

        @node(output=(Passed("input"), Each("rows")))
        class Lost(PlanNode):
            input: PlanNode = input_node()
            keys: tuple[int, ...] = positions("inptu")


def test_a_node_has_the_inputs_that_it_describes() -> None:
    @node()
    class Pair(PlanNode):
        first: PlanNode = input_node()
        words: str = parameter()
        second: PlanNode = input_node()

    a, b, c = scan(), scan(), scan()
    pair = Pair(Schema.of(x=BIGINT), NodeHints(), a, "", b)
    assert pair.inputs == (a, b)
    assert with_inputs(pair, (a, b)) is pair
    assert with_inputs(pair, (a, c)).inputs == (a, c)
