"""Critical modules, and the tests that must notice if one of them is wrong."""

from __future__ import annotations

TARGETS: dict[str, tuple[str, ...]] = {
    "flowrun/runtime/checkpoint/coordinator.py": (
        "tests/runtime/checkpoint/test_coordinator.py",
        "tests/runtime/checkpoint/test_coordinator_requests.py",
        "tests/runtime/checkpoint/test_coordinator_worlds.py",
        "tests/runtime/checkpoint/test_coordinator_stateful.py",
    ),
    "flowrun/runtime/checkpoint/pacing.py": (
        "tests/runtime/checkpoint/test_coordinator.py",
        "tests/runtime/checkpoint/test_coordinator_requests.py",
    ),
    "flowrun/runtime/jobmaster/commits.py": (
        "tests/runtime/jobmaster/test_commits.py",
        "tests/runtime/test_recovery.py",
    ),
    "flowrun/runtime/jobmaster/restart.py": ("tests/runtime/jobmaster/test_restart.py",),
    "flowrun/runtime/jobmaster/regions.py": ("tests/runtime/jobmaster/test_regions.py",),
    "flowrun/runtime/network/valve.py": ("tests/runtime/network/test_valve.py",),
    "flowrun/runtime/network/barrier_alignment.py": (
        "tests/runtime/network/test_barrier_handlers.py",
        "tests/runtime/network/test_recorded_cut.py",
    ),
    "flowrun/state/key_groups.py": ("tests/state/test_key_groups.py",),
    "flowrun/state/storage/lock.py": ("tests/state/storage/test_folder.py",),
    "flowrun/state/storage/inventory.py": ("tests/state/storage/test_folder.py",),
    "flowrun/state/storage/writer.py": ("tests/state/storage/test_writer.py", "tests/state/storage/test_folder.py"),
    "flowrun/operators/joins/interval.py": ("tests/operators/joins/test_interval_join.py",),
    "flowrun/operators/joins/temporal_versions.py": (
        "tests/operators/joins/test_temporal_join.py",
        "tests/operators/joins/test_temporal_versions.py",
    ),
    "flowrun/operators/windows/triggers.py": ("tests/operators/windows/test_triggers.py",),
    "flowrun/operators/ranking/top_n_state.py": ("tests/operators/ranking/test_top_n.py",),
    "flowrun/operators/updating/group_state.py": ("tests/operators/updating/test_group_aggregate.py",),
    "flowrun/plan/rewrites/limits.py": ("tests/plan/test_golden_rules.py", "tests/plan/test_rule_properties.py"),
    "flowrun/plan/rewrites/filters.py": ("tests/plan/test_golden_rules.py", "tests/plan/test_rewrites.py"),
    "flowrun/plan/rewrites/pushing.py": ("tests/plan/test_golden_rules.py", "tests/plan/test_rule_properties.py"),
}
"""Module → tests. Those of one module should end within a minute: they run once for each change of it."""

EQUIVALENT: dict[tuple[str, str], str] = {}
"""(module, changed line as it becomes) → why the change means the same, so that no test can notice it."""
