"""The state of every window operator through real checkpoint files: written in two checkpoints, read at other parallelisms."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.api.state import OperatorSnapshot
from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind
from flowrun.state.key_groups import key_group_range
from flowrun.state.storage.folder import open_job_folder
from flowrun.testing.harness import OperatorHarness
from tests.operators.stored import stored, taken
from tests.operators.windows.streams import INPUT, drive, random_events
from tests.operators.windows.test_window_state import KINDS, contents, recipes
from tests.slices import everyday


@pytest.mark.parametrize("kind", everyday(KINDS, 3))
def test_what_was_written_is_read_at_any_parallelism_and_goes_on(kind: str, tmp_path: Path) -> None:
    factory, events = recipes((0, 1))[kind], random_events(150, 23)[:-1]
    folder = open_job_folder(str(tmp_path), "windows", lineage="one", clock=ManualClock())
    groups = key_group_range(0, 1, 128)
    writer = folder.writer("a" * 32, kind, 0, groups)
    harness = OperatorHarness(factory, schema=INPUT)
    for checkpoint, part in enumerate((events[:100], events[100:]), 1):
        drive(harness, part, 7)
        snapshot = taken(harness, checkpoint)
        state = writer.write(
            checkpoint, folder.begin(checkpoint, CheckpointKind.CHECKPOINT, None), CheckpointKind.CHECKPOINT, snapshot
        )
        writer.completed(checkpoint)
    whole = contents(stored(snapshot))
    assert {name: table.schema for name, table in state.keyed.items()}.keys() == dict(factory.state_schemas()).keys()
    for parallelism in (1, 2, 3):
        found: dict[str, list[str]] = {name: [] for name in whole}
        for subtask in range(parallelism):
            mine = key_group_range(subtask, parallelism, 128)
            keyed = {n: folder.read_keyed([t], mine, folder.job_folder) for n, t in state.keyed.items()}
            restored = OperatorSnapshot(keyed, snapshot.operator)
            new = OperatorHarness(factory, schema=INPUT, subtask=subtask, parallelism=parallelism, restored=restored)
            for name, rows in contents(stored(taken(new))).items():
                found[name] += [r for r in rows if name != "rows"]
        expected = {n: sorted(rows) if n != "rows" else [] for n, rows in whole.items()}
        assert {n: sorted(rows) for n, rows in found.items()} == expected
    folder.close()
