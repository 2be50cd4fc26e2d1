"""How much memory the system leaves to this process, and how often it has ended processes for want of it (Linux).

Read from the control groups (both versions) that the process is in, with all groups around them, and from the machine's own figures. On
other systems nothing is known. Needs nothing but the standard library: the watchdog's process uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_UNLIMITED = 1 << 60


@dataclass(frozen=True)
class MemoryLimit:
    """A limit that holds for this process: its size and how much of it is left, bytes, and what sets it."""

    limit: int
    left: int
    what: str


def memory_limits(root: Path = _ROOT, proc: Path = _PROC) -> list[MemoryLimit]:
    """All limits, the machine's last. Memory of files that the system gives back on demand counts as left."""
    limits = [limit for group in _groups(root, proc) if (limit := _limit(group)) is not None]
    machine = _machine(proc)
    return limits if machine is None else [*limits, machine]


def kills_for_memory(root: Path = _ROOT, proc: Path = _PROC) -> int | None:
    """How many processes of this control group, or else of the machine, were ended for want of memory; None: unknown."""
    for group in _groups(root, proc):
        for name in ("memory.events", "memory.oom_control"):
            kills = _figures(group / name).get("oom_kill")
            if kills is not None:
                return kills
    return _figures(proc / "vmstat").get("oom_kill")


class MemoryKills:
    """Tells whether the system has ended a process for want of memory: it does so without a word, but counts.

    Args:
        count: reads how many there were; None: unknown.
    """

    def __init__(self, count: Callable[[], int | None] = kills_for_memory) -> None:
        self._count = count
        self._known = count()

    def is_more(self) -> bool:
        """Whether there were any since this was asked last."""
        before, self._known = self._known, self._count()
        return before is not None and self._known is not None and self._known > before


def _groups(root: Path, proc: Path) -> Iterator[Path]:
    """The folders of the memory controller for this process: its group, then those around it."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            mount = root
        elif "memory" in controllers.split(","):
            mount = root / "memory"
        else:
            continue
        folder = mount / path.lstrip("/")
        if not folder.is_dir():  # in a container the path may be the host's
            folder = mount
        yield folder
        while folder != mount:
            folder = folder.parent
            yield folder


def _limit(group: Path) -> MemoryLimit | None:
    for limit_name, usage_name, reclaimable in (
        ("memory.max", "memory.current", ("inactive_file", "active_file")),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    ):
        limit, usage = _number(group / limit_name), _number(group / usage_name)
        if limit is None or usage is None or limit >= _UNLIMITED:
            continue
        figures = _figures(group / "memory.stat")
        used = usage - sum(figures.get(name, 0) for name in reclaimable)
        return MemoryLimit(limit, limit - used, "the control group's limit")
    return None


def _machine(proc: Path) -> MemoryLimit | None:
    figures = {
        name.strip(): int(text.split()[0]) * 1024
        for line in _text(proc / "meminfo").splitlines()
        for name, _, text in [line.partition(":")]
        if text.split() and text.split()[0].isdecimal()
    }
    if "MemTotal" not in figures or "MemAvailable" not in figures:
        return None
    left = figures["MemAvailable"] + figures.get("SwapFree", 0)
    return MemoryLimit(figures["MemTotal"] + figures.get("SwapTotal", 0), left, "the machine's memory")


def _figures(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
