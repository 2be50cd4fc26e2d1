"""Keeps pyarrow from importing pandas in runs that cannot use it.

Where pandas is installed, pyarrow imports it when the first Python value is converted: 0.15 s and 40 MB, a tenth of a run over a million
events. It asks once in a process, and without it takes everything for what it is but pandas' own NaT and NA.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    """Says of pandas, and of nothing else, that it is not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError(
                "pandas is not imported: this pipeline runs no Python code of users", name=fullname
            )
        return None


_no_pandas = _NoPandas()


def forgo_pandas() -> None:
    """Let imports of pandas fail, unless it is there already, until `allow_pandas` is called."""
    if "pandas" not in sys.modules and _no_pandas not in sys.meta_path:
        sys.meta_path.insert(0, _no_pandas)


def allow_pandas() -> None:
    """Let pandas be imported again: users' code may want it. Idempotent."""
    if _no_pandas in sys.meta_path:
        sys.meta_path.remove(_no_pandas)
