"""A note in a job's folder: the job was stopped with a savepoint that is newer than its checkpoints."""

from __future__ import annotations

import orjson

from flowrun.core.record import record
from flowrun.errors import StateError
from flowrun.state.storage.signing import check_signature, signature, state_key
from flowrun.state.storage.state_path import StatePath

STOP_NOTE_FILE = "_stopped.json"
"""Name of the file; it counts until a checkpoint with a higher number is complete."""


@record
class StopNote:
    """`checkpoint_id` is the number of the savepoint, `savepoint` its path or URI."""

    checkpoint_id: int
    savepoint: str


def write_stop_note(folder: StatePath, note: StopNote) -> None:
    """Put the note into a job's folder, durably.

    Raises:
        StateError: it cannot be written.
    """
    document: dict[str, object] = {"checkpoint_id": note.checkpoint_id, "savepoint": note.savepoint}
    key = state_key()
    if key is not None:
        document["signature"] = signature(key, _signed(note))
    (folder / STOP_NOTE_FILE).write_atomically(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    folder.sync_folder()


def read_stop_note(folder: StatePath) -> StopNote | None:
    """The note of a job's folder, if there is one.

    Raises:
        StateError: it cannot be read, or there is a key and it is not signed by that.
    """
    content = (folder / STOP_NOTE_FILE).read_bytes()
    if content is None:
        return None
    try:
        document = orjson.loads(content)
        note = StopNote(int(document["checkpoint_id"]), str(document["savepoint"]))
        given = document.get("signature")
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateError(
            f"'{folder / STOP_NOTE_FILE}' is damaged: {error}",
            hint="it said with which savepoint the job was stopped; name what to resume from, a savepoint or one checkpoint",
        ) from error
    key = state_key()
    if key is not None:
        check_signature(key, _signed(note), None if given is None else str(given), f"'{folder / STOP_NOTE_FILE}'")
    return note


def _signed(note: StopNote) -> bytes:
    return b"note of a stop\n" + orjson.dumps([note.checkpoint_id, note.savepoint])
