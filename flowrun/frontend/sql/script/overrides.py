"""Values from the command line that win over those of a script: `settings.<path>=…` and `tables.<name>.<option>=…`."""

from __future__ import annotations

from collections.abc import Mapping

from flowrun.core.record import record
from flowrun.errors import near_matches
from flowrun.frontend.diagnostics import Diagnostics

_SETTINGS = "settings"
_TABLES = "tables"


@record
class ScriptOverrides:
    """Settings as `path=value` texts in order, and options by table."""

    settings: tuple[str, ...]
    tables: Mapping[str, Mapping[str, str]]


def read_overrides(given: Mapping[str, str], diagnostics: Diagnostics) -> ScriptOverrides:
    """The overrides by what they are about; anything else is reported.

    >>> read_overrides({"settings.parallelism": "4", "tables.orders.json.fail-on-missing-field": "true"}, Diagnostics())
    ScriptOverrides(settings=('settings.parallelism=4',), tables={'orders': {'json.fail-on-missing-field': 'true'}})
    """
    settings: list[str] = []
    tables: dict[str, dict[str, str]] = {}
    for path, value in given.items():
        parts = path.split(".")
        if parts[0] == _SETTINGS and len(parts) > 1:
            settings.append(f"{path}={value}")
        elif parts[0] == _TABLES and len(parts) > 2:
            tables.setdefault(parts[1], {})[".".join(parts[2:])] = value
        else:
            close = near_matches(parts[0], (_SETTINGS, _TABLES))
            hint = (
                f"did you mean '{close[0]}'?"
                if close
                else "in a script: settings.parallelism=4, tables.orders.path=in/"
            )
            diagnostics.error(f"--set {path}={value}: there is nothing of this name to set", None, hint=hint)
    return ScriptOverrides(tuple(settings), tables)
