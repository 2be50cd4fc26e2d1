"""What makes the operator of each spec: the table is whole, and each entry takes its spec."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import FrozenInstanceError, dataclass, fields
from importlib import import_module
from typing import Any, get_type_hints

import pytest

import flowrun.operators
from flowrun.api.operator import ChainingStrategy, OperatorSpec
from flowrun.errors import InternalError
from flowrun.operators.base import AbstractOperator
from flowrun.operators.calc import CalcOperator
from flowrun.operators.factories import CalcFactory
from flowrun.operators.implementations import IMPLEMENTATIONS, create_operator
from flowrun.operators.sink import SinkOperator

PACKAGE = "flowrun.operators."


def found(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(PACKAGE + module), attribute)


def all_specs() -> dict[str, type[OperatorSpec]]:
    """The specs of the package that are not only a base of others."""
    for module in pkgutil.walk_packages(flowrun.operators.__path__, PACKAGE):
        import_module(module.name)
    kinds = list(OperatorSpec.__subclasses__())
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = [k for k in kinds if k.__module__.startswith(PACKAGE)]
    bases = {base for kind in ours for base in kind.__mro__[1:]}
    return {f"{k.__module__.removeprefix(PACKAGE)}:{k.__qualname__}": k for k in ours if k not in bases}


def test_every_spec_has_an_implementation_and_every_implementation_a_spec() -> None:
    assert set(all_specs()) == set(IMPLEMENTATIONS)


def test_specs_are_where_no_operator_is() -> None:
    """An import contract keeps operators out of modules of this name."""
    assert [n for n in IMPLEMENTATIONS if n.partition(":")[0].rpartition(".")[2] != "factories"] == []


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_an_implementation_takes_its_spec_and_nothing_else(name: str) -> None:
    made_by = found(IMPLEMENTATIONS[name])
    call = made_by.__init__ if inspect.isclass(made_by) else made_by
    needed = [p for p in inspect.signature(made_by).parameters.values() if p.default is p.empty]
    assert [get_type_hints(call)[p.name] for p in needed] == [found(name)]


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_a_spec_is_frozen_and_says_how_it_may_be_chained(name: str) -> None:
    kind = found(name)
    spec = object.__new__(kind)
    with pytest.raises(FrozenInstanceError):
        setattr(spec, fields(kind)[0].name, None)
    assert isinstance(kind.chaining, ChainingStrategy)
    assert "chaining" not in {f.name for f in fields(kind)}


def test_a_spec_becomes_its_operator() -> None:
    assert isinstance(create_operator(CalcFactory()), CalcOperator)


def test_a_factory_of_one_s_own_makes_its_operator_itself() -> None:
    class Own(AbstractOperator):
        pass

    @dataclass(frozen=True)
    class OwnFactory:
        chaining: ChainingStrategy = ChainingStrategy.HEAD

        def create(self) -> Own:
            return Own()

    assert isinstance(create_operator(OwnFactory()), Own)


def test_a_spec_that_the_table_does_not_have_is_an_error() -> None:
    class Stranger(OperatorSpec):
        pass

    with pytest.raises(InternalError, match=r"there is no operator for .*Stranger"):
        create_operator(Stranger())


@pytest.mark.parametrize("name", [n for n in IMPLEMENTATIONS if not found(n).uses_event_time])
def test_an_operator_that_says_so_does_nothing_with_watermarks_but_pass_them_on(name: str) -> None:
    operator = found(IMPLEMENTATIONS[name])
    assert operator.process_watermark is AbstractOperator.process_watermark
    assert "current_watermark" not in inspect.getsource(import_module(operator.__module__))
    if operator is not SinkOperator:  # a sink may be told later that event time has advanced
        assert operator.on_watermark is AbstractOperator.on_watermark
