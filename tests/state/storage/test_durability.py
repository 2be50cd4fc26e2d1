"""What of a checkpoint is on disk when it counts as complete, should the power fail then."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind
from flowrun.state.storage.folder import open_job_folder
from flowrun.state.storage.names import METADATA_FILE
from flowrun.state.storage.writer import KeyedWriter
from tests.disk_log import DiskLog
from tests.state.storage.jobs import GROUPS, OPERATOR, bag, bag_segment, take


@pytest.mark.parametrize("kind", list(CheckpointKind))
def test_content_and_names_of_state_are_on_disk_before_the_metadata_that_speaks_of_them(
    kind: CheckpointKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DiskLog(monkeypatch)
    folder = open_job_folder(str(tmp_path), "my job", lineage="L", clock=ManualClock())
    writer = KeyedWriter(OPERATOR, "my op", 0, GROUPS, folder.storage.root)
    path, state = take(folder, writer, 1, bag(bag_segment([(1, 10)])), kind=kind)
    checkpoint = Path(path)
    (reference,) = state.keyed["bag"].files
    (written,) = checkpoint.glob("*.parquet")
    assert reference.file.path.endswith(written.name)

    content, name = log.content_at(written), log.name_at(written, without=METADATA_FILE)
    metadata, entry = log.content_at(checkpoint / METADATA_FILE), log.name_at(checkpoint / METADATA_FILE)
    assert content < name < metadata < entry < log.name_at(checkpoint, after=entry)
    folder.close()
