"""Limits of memory as control groups and the machine tell them, of folders that look like theirs."""

from __future__ import annotations

from pathlib import Path

from flowrun.runtime.watchdog.memory import MemoryKills, MemoryLimit, kills_for_memory, memory_limits

MIB = 1 << 20
MEMINFO = "MemTotal:  1024 kB\nMemAvailable:  512 kB\nSwapTotal: 64 kB\nSwapFree: 32 kB\nHugePages_Total:  0\n"
MACHINE = MemoryLimit((1024 + 64) * 1024, (512 + 32) * 1024, "the machine's memory")


def write(root: Path, **texts: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (root / name.replace("__", ".")).write_text(text)


def proc(root: Path, cgroup: str, meminfo: str = MEMINFO) -> Path:
    write(root / "proc" / "self", cgroup=cgroup)
    write(root / "proc", meminfo=meminfo, vmstat="nr_free_pages 5\noom_kill 7\n")
    return root / "proc"


def test_version_two(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    stat = f"anon 5\ninactive_file {2 * MIB}\nactive_file {MIB}\n"
    write(groups / "a", memory__max=f"{100 * MIB}\n", memory__current=f"{90 * MIB}\n", memory__stat=stat)
    write(groups / "a" / "b", memory__max="max\n", memory__current="5\n", memory__events="low 0\noom 1\noom_kill 3\n")
    where = proc(tmp_path, "0::/a/b\n")
    assert memory_limits(groups, where) == [MemoryLimit(100 * MIB, 13 * MIB, "the control group's limit"), MACHINE]
    assert kills_for_memory(groups, where) == 3


def test_version_one(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    write(
        groups / "memory" / "job",
        memory__limit_in_bytes=str(64 * MIB),
        memory__usage_in_bytes=str(60 * MIB),
        memory__stat=f"inactive_file 1\ntotal_inactive_file {MIB}\ntotal_active_file {MIB}\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    )
    write(groups / "memory", memory__limit_in_bytes="9223372036854771712", memory__usage_in_bytes="1")
    where = proc(tmp_path, "9:name=systemd:/\n4:memory:/job\n3:cpu,cpuacct:/other\n")
    assert memory_limits(groups, where) == [MemoryLimit(64 * MIB, 6 * MIB, "the control group's limit"), MACHINE]
    assert kills_for_memory(groups, where) == 2


def test_a_path_of_the_host_means_the_root_of_the_container(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    write(groups, memory__max=str(MIB), memory__current=str(MIB // 2))
    assert memory_limits(groups, proc(tmp_path, "0::/kubepods/pod7\n"))[0] == MemoryLimit(
        MIB, MIB // 2, "the control group's limit"
    )


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    where = proc(tmp_path, "")
    assert memory_limits(tmp_path / "none", where) == [MACHINE]
    assert kills_for_memory(tmp_path / "none", where) == 7


def test_elsewhere_nothing_is_known(tmp_path: Path) -> None:
    assert memory_limits(tmp_path, tmp_path) == []
    assert kills_for_memory(tmp_path, tmp_path) is None


def test_kills_are_told_once_and_only_where_they_are_counted() -> None:
    counts = iter([3, 3, 5, 5, None, 7, 8])
    kills = MemoryKills(lambda: next(counts))
    assert [kills.is_more() for _ in range(6)] == [False, True, False, False, False, True]
