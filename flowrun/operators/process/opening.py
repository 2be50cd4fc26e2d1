"""What a user's function is told when it is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowrun.api.metrics import MetricGroup
from flowrun.api.operator import OperatorContext
from flowrun.errors import StateError, did_you_mean


class FunctionOpenContext:
    """What `open` is told; see `OpenContext`."""

    def __init__(self, context: OperatorContext, handles: Mapping[str, Any], place: str) -> None:
        self._context = context
        self._handles = handles
        self._place = place

    @property
    def subtask(self) -> int:
        return self._context.subtask

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    @property
    def metrics(self) -> MetricGroup:
        return self._context.metrics

    def state(self, name: str) -> Any:
        if name not in self._handles:
            raise StateError(
                f"{self._place} declares no state '{name}'",
                hint=did_you_mean(name, self._handles) or "declare it in the class: seen = value_state('BIGINT')",
            )
        return self._handles[name]
