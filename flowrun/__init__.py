"""flowrun: declarative streaming pipelines with Flink's semantics on Arrow batches."""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"
__all__ = ["__version__", "pipeline", "ptf", "sql", "table", "udaf", "udf", "udtf"]

_FOR_USERS = {
    **dict.fromkeys(("ptf", "udaf", "udf", "udtf"), "flowrun.api.user_functions"),
    **dict.fromkeys(("pipeline", "sql"), "flowrun.runners.notebook.running"),
    "table": "flowrun.runners.notebook.tables",
}


def __getattr__(name: str) -> object:
    """What users import from the package itself, imported when it is first asked for: the command must start fast."""
    if name in _FOR_USERS:
        return getattr(import_module(_FOR_USERS[name]), name)
    raise AttributeError(f"module 'flowrun' has no attribute '{name}'")


def __dir__() -> list[str]:
    """What notebooks and shells propose behind `flowrun.`: these names, imported or not."""
    return sorted(__all__)
