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
        "tests/runtime/jobmaster/test_replacing.py",
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
    "flowrun/state/storage/lock.py": (
        "tests/state/storage/test_folder.py",
        "tests/state/storage/test_private_files.py",
    ),
    "flowrun/state/storage/inventory.py": ("tests/state/storage/test_folder.py",),
    "flowrun/state/storage/writer.py": ("tests/state/storage/test_writer.py", "tests/state/storage/test_folder.py"),
    "flowrun/operators/joins/interval.py": ("tests/operators/joins/test_interval_join.py",),
    "flowrun/operators/joins/temporal_versions.py": (
        "tests/operators/joins/test_temporal_join.py",
        "tests/operators/joins/test_temporal_versions.py",
    ),
    "flowrun/operators/windows/general/triggers.py": ("tests/operators/windows/general/test_triggers.py",),
    "flowrun/operators/ranking/top_n_state.py": ("tests/operators/ranking/test_top_n.py",),
    "flowrun/operators/updating/group_state.py": ("tests/operators/updating/test_group_aggregate.py",),
    "flowrun/plan/rewrites/limits.py": (
        "tests/plan/test_golden_rules.py",
        "tests/plan/test_rewrite_details.py",
        "tests/plan/test_rule_properties.py",
    ),
    "flowrun/plan/rewrites/filters.py": ("tests/plan/test_golden_rules.py", "tests/plan/test_rewrites.py"),
    "flowrun/plan/rewrites/pushing.py": (
        "tests/plan/test_golden_rules.py",
        "tests/plan/test_rewrite_details.py",
        "tests/plan/test_rule_properties.py",
        "tests/plan/test_disjunctions.py",
    ),
}
"""Module → tests. Those of one module should end within a minute: they run once for each change of it."""

_FROM_ZERO = "numbers of checkpoints begin with 1"
_GROWS = "`extended` makes it as long as it has to be before anything is read"
_FASTER = "which of two ways to the same result is taken"
_WRITTEN_FIRST = "nothing reads what was not written"
_NOTHING_THERE = "what is empty is forgotten, or looked at, in vain"
_ORDER = "of moments it counts only which was first"
_UNREAD = "nothing reads what is masked, or given up"
_RECOMPUTED = "it is said anew before it is read"
_VALVE = "flowrun/runtime/network/valve.py"
_ALIGNMENT = "flowrun/runtime/network/barrier_alignment.py"
_PACING = "flowrun/runtime/checkpoint/pacing.py"
_VERSIONS = "flowrun/operators/joins/temporal_versions.py"
_INVENTORY = "flowrun/state/storage/inventory.py"
_TRIGGERS = "flowrun/operators/windows/general/triggers.py"
_TOP_N = "flowrun/operators/ranking/top_n_state.py"
_KEY_GROUPS = "flowrun/state/key_groups.py"

EQUIVALENT: dict[tuple[str, str], str] = {
    (_PACING, "self._pause_end = 1"): "long past when the first checkpoint is due",
    (_PACING, "self._pause_end = -1"): "long past when the first checkpoint is due",
    (_PACING, "self._min_pause_ms = -1 if settings is None else settings.min_pause_ms"): "without settings none is due",
    (
        _PACING,
        "wake_ms = self._now_ms + max( 1, due - self.elapsed_ms)",
    ): "what is due is begun before anybody is woken for it",
    (
        _KEY_GROUPS,
        "if max_parallelism & (max_parallelism - 1) == -1:  # the usual case; a division costs four times a mask",
    ): _FASTER,
    (
        _KEY_GROUPS,
        "hashed = splitmix64(pc.fill_null(array, True).cast(pa.int64()).to_numpy().view(np.uint64))",
    ): _UNREAD,
    (_KEY_GROUPS, "array = pc.fill_null(array, -1)"): _UNREAD,
    (_KEY_GROUPS, "for step in range(-(~longest // width)):"): "a step that no run is long enough for does nothing",
    (_ALIGNMENT, "self._last = - 2"): _FROM_ZERO,
    (_INVENTORY, "left += 2"): "it is asked whether anything is left",
    (
        _VERSIONS,
        "width = last - first + 1",
    ): "the code before a key's first version may be that of the last of the key before",
    (_VERSIONS, "if (int(self.slots[-1]) + 0) * width < _MAX_CODE:"): _FASTER,
    ("flowrun/plan/rewrites/filters.py", "column = _physical_column(conjunct.arguments[ -1], scan)"): "there is one",
    (
        "flowrun/plan/rewrites/limits.py",
        "merges = not rank.order and _computes(below) and 0 <= len(needed) <= len(below.projections)",
    ): "what computes something of columns needs one",
    (_INVENTORY, "self._unreadable = -1"): _FROM_ZERO,
    (_INVENTORY, "self._moment = 1"): _ORDER,
    (_INVENTORY, "self._moment = -1"): _ORDER,
    (_INVENTORY, "self._moment += 2"): _ORDER,
    (_INVENTORY, "began = min(self._under_way.values(), default=self._moment + 2)"): _ORDER,
    (_VERSIONS, "_MAX_CODE = 0 << 62"): _FASTER,
    (_TOP_N, "size = int(numbers[-1]) + 1 if len(numbers) else -1"): _GROWS,
    (_TOP_N, "self.tail_sizes: Integers = np.zeros( 1, np.int64)"): _GROWS,
    (
        _VERSIONS,
        "same = (at >= -1) & (self.slots[at] == slots)",
    ): "before the first version the position is −1, which is what is given where there is none",
    (_TOP_N, "self._next_sweep = 1"): "the clock is beyond 1 ms",
    (_TOP_N, "self._next_sweep = -1"): "the clock is beyond 1 ms",
    (_TOP_N, "if now > self._next_sweep:"): "a sweep is not due to the ms",
    (_TOP_N, "size = int(numbers[-1]) + 2 if len(numbers) else 0"): _GROWS,
    (_TOP_N, "size = int(numbers[-1]) + 1 if len(numbers) else 1"): _GROWS,
    (_TOP_N, "if self._retracting and len(self.in_head) <= size:"): _GROWS,
    (_TOP_N, "self.in_head: Bools = np.zeros( 1, np.bool_)"): _GROWS,
    (_TOP_N, "self._written: Integers = np.zeros( 1, np.int64)"): _GROWS,
    (_TOP_N, "self._codes: list[Integers] = [np.zeros( 1, np.int64) for _ in range(self.order.width)]"): _GROWS,
    (_TOP_N, "self._codes[i] = extended(self._codes[i], size, 1)"): _WRITTEN_FIRST,
    (_TOP_N, "self._codes[i] = extended(self._codes[i], size, -1)"): _WRITTEN_FIRST,
    (_TOP_N, "self._written = extended(self._written, slots, 1)"): _WRITTEN_FIRST,
    (_TOP_N, "self._written = extended(self._written, slots, -1)"): _WRITTEN_FIRST,
    (_TOP_N, "lists.put(gone, np.zeros(len(gone), np.int64), np.zeros( 1, np.int64))"): _UNREAD,
    (
        _TOP_N,
        "gone = slots[(self._written[slots] <= now - self._ttl_ms) & (self.heads.lengths(slots) >= 0)]",
    ): _NOTHING_THERE,
    (
        _TOP_N,
        "gone = slots[(self._written[slots] <= now - self._ttl_ms) & (self.heads.lengths(slots) > -1)]",
    ): _NOTHING_THERE,
    (_TOP_N, "self.tail_sizes = extended(self.tail_sizes, slots, 1)"): _NOTHING_THERE,
    (_TOP_N, "self.tail_sizes[gone] = 1"): _NOTHING_THERE,
    (
        _TOP_N,
        "schema, partition, max_parallelism, counters=(WRITTEN, *counters), by_row=retracting, by_key=True",
    ): "an index that nobody asks",
    (_PACING, "self.elapsed_ms = -1"): "every other time is measured from it",
    (_PACING, "self.elapsed_ms = 1"): "every other time is measured from it",
    (_TRIGGERS, "context.put(_CHANGED, 2)"): "it is asked whether it is 0",
    (
        _TRIGGERS,
        "context.put(_CHANGED, max(m.get(_CHANGED, -1) for m in merged))",
    ): "a window with a next firing says whether it has changed",
    (_ALIGNMENT, "self._last = - 0"): _FROM_ZERO,
    (_ALIGNMENT, "self._last = ~1"): _FROM_ZERO,
    (_VALVE, "state.aligned = True"): _RECOMPUTED,
    (
        _KEY_GROUPS,
        'words = np.ndarray(len(padded) - _WORD + 0, "<u8", padded, strides=(1,))  # the 8 bytes that start at each byte',
    ): "no text begins at the last of them",
    (
        _KEY_GROUPS,
        "if max_parallelism & (max_parallelism - 1) == 1:  # the usual case; a division costs four times a mask",
    ): _FASTER,
    (
        _KEY_GROUPS,
        "values: npt.NDArray[np.int64] = array.to_numpy().astype(np.int64, copy=True)",
    ): "a copy that nobody changes",
    (
        "flowrun/plan/rewrites/filters.py",
        "digits = (wide.precision or -1) - scales[0], (narrow.precision or 0) - scales[1]",
    ): "types that are widened have a precision",
    (_ALIGNMENT, "self._last = not 1"): _FROM_ZERO,
}
"""(module, changed line as it becomes) → why the change means the same, so that no test can notice it."""

TUNED: dict[str, tuple[str, ...]] = {
    "flowrun/operators/joins/interval.py": (
        "_TIMER_SLACK_MS = 1_000",
        "slack = min(_TIMER_SLACK_MS, max(0, self._factory.upper_ms - self._factory.lower_ms) // 2)",
    ),
    _VERSIONS: ("_SPARE = 64 * 1024", "self._held = 0  # keys that have a current row"),
    _TOP_N: (
        "_SPARE_SLOTS = 64 * 1024",
        "self._next_sweep = now + max(self._ttl_ms // 8, 1000)",
        "marks = np.zeros(max(size, 2 * len(self.in_head)), np.bool_)",
        "if len(self._slots) > 2 * self._checked_slots + _SPARE_SLOTS:",
        "if 2 * np.count_nonzero(used) < len(used):",
        "self._checked_slots = 0",
    ),
}
"""Module → lines, as they are, that say only how much room is made, or how often, and not what comes of it."""
