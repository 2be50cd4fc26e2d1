"""Which cases of many run every day, or in CI: a slice that is spread over all of them. The others are marked `exhaustive`, and run in CI,
or `soak`, and run with `make soak`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

T = TypeVar("T")


def everyday(cases: Iterable[T], every: int, *, ci: int = 1) -> list[T | ParameterSet]:
    """The cases as parameters: the first, and each `every`-th after it, as they are; of the others each `ci`-th is `exhaustive`, the rest
    is left to `make soak`.

    A case that is a tuple stands for several parameters.
    """
    found: list[T | ParameterSet] = []
    for place, case in enumerate(cases):
        mark = pytest.mark.exhaustive if place % ci == 0 else pytest.mark.soak
        found.append(case if place % every == 0 else _marked(case, mark))
    return found


def in_ci(cases: Iterable[T], every: int) -> list[T | ParameterSet]:
    """The cases as parameters of a test that is `exhaustive`: the first, and each `every`-th after it, as they are; the others are left to
    `make soak`.
    """
    return [case if place % every == 0 else _marked(case, pytest.mark.soak) for place, case in enumerate(cases)]


def _marked(case: object, mark: pytest.MarkDecorator) -> ParameterSet:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark)
