"""Probes in the expressions of a pipeline under test: each counts how often a condition was true, and how often it was not.

A probe is a function of this module, as users' functions are of theirs: `probe_7` for the seventh.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc


class Probe:
    """What a condition was."""

    def __init__(self) -> None:
        self.true = 0
        self.other = 0
        """FALSE or NULL."""

    def see(self, values: pa.Array) -> pa.Array:
        """Count, and give the values."""
        true = pc.sum(pc.fill_null(values, False)).as_py() or 0
        self.true += true
        self.other += len(values) - true
        return values


_probes: list[Probe] = []


def new_probe() -> tuple[Probe, str]:
    """(a probe, the reference of its function)."""
    _probes.append(Probe())
    return _probes[-1], f"{__name__}:probe_{len(_probes) - 1}"


def __getattr__(name: str) -> Callable[[pa.Array], pa.Array]:
    prefix, _, number = name.partition("_")
    if prefix != "probe" or not number.isdigit() or int(number) >= len(_probes):
        raise AttributeError(name)
    return _probes[int(number)].see
