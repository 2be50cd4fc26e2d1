"""What registries share: names that stand for objects in modules, of flowrun's own and of other packages' entry points."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping

from flowrun.errors import InternalError


def registered(built_in: Mapping[str, str], group: str, what: str) -> dict[str, str]:
    """Name → `module:attribute`, of flowrun's own and of an entry point group; no module is imported.

    Args:
        built_in: flowrun's own.
        group: of entry points.
        what: a name stands for, for messages.

    Raises:
        InternalError: two packages registered a name.
    """
    targets = dict(built_in)
    for point in importlib.metadata.entry_points(group=group):
        if targets.setdefault(point.name, point.value) != point.value:
            raise InternalError(f"{what} '{point.name}' is registered twice: {targets[point.name]} and {point.value}")
    return targets


def loaded(target: str) -> object:
    """The object that `module:attribute` stands for; None if the module has no such attribute."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute, None)
