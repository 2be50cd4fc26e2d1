"""Which checkpoint to propose when one turns out to be damaged: the newest that does not need the damaged file.

The user is told of it; it is never used silently.
"""

from __future__ import annotations

from flowrun.errors import StateError
from flowrun.state.storage.documents import document_at, named_paths
from flowrun.state.storage.names import METADATA_FILE, checkpoint_folder, checkpoint_number
from flowrun.state.storage.state_path import StatePath


def offering_another(root: StatePath, damaged: str) -> str:
    """A hint: the newest complete checkpoint in the job's folder `root` that does not name the path `damaged`, if there is one."""
    for number in complete_numbers(root):
        folder = root / checkpoint_folder(number)
        try:
            if damaged not in named_paths(document_at(folder), checkpoint_folder(number)):
                return (
                    f"go on from another checkpoint: --from-savepoint {folder} --committed-after remove (which first deletes what "
                    "was committed after it, so that each row is there once)"
                )
        except StateError:
            continue  # damaged too: nothing to offer
    return f"'{root}' has no complete checkpoint without it: go on from a savepoint, or start afresh"


def offering_before(root: StatePath, damaged: int) -> str:
    """A hint: the newest readable checkpoint in the job's folder `root` other than number `damaged`, if there is one."""
    return offering_another(root, f"{checkpoint_folder(damaged)}/{METADATA_FILE}")


def complete_numbers(root: StatePath) -> list[int]:
    """Numbers of the checkpoints in a job's folder that have metadata, newest first."""
    numbers = [n for e in root.entries() if e.is_folder and (n := checkpoint_number(e.name)) is not None]
    return [n for n in sorted(numbers, reverse=True) if has_metadata(root / checkpoint_folder(n))]


def has_metadata(folder: StatePath) -> bool:
    """Whether a folder is a complete checkpoint or savepoint."""
    return any(e.name == METADATA_FILE and not e.is_folder for e in folder.entries())
