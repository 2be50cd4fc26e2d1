"""What registries share: names that stand for objects in modules, of flowrun's own and of other packages' entry points."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping

from flowrun.errors import InternalError, SetupError


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


def loaded(target: str, what: str) -> object:
    """The object that `module:attribute` stands for; None if the module has no such attribute.

    Args:
        target: of `registered`.
        what: it is, for messages: `connector 'ledger'`.

    Raises:
        SetupError: the module, of another package, cannot be imported.
    """
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except Exception as error:
        if module.startswith("flowrun."):
            raise
        raise SetupError(
            f"{what} is of another package, whose module {module} cannot be imported: {type(error).__name__}: {error}",
            hint="install what it needs, or another version of that package, or uninstall it",
        ) from error
