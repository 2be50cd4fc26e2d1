"""No metadata make the readers of state fail with anything but a reason, and a broken snapshot is listed beside the others."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from flowrun.errors import StateError
from flowrun.runners.inspection.snapshots import list_snapshots
from flowrun.state.storage.documents import rendered
from flowrun.state.storage.metadata_file import read_metadata
from tests.fuzz.connector_state import DamagedConnectorState
from tests.fuzz.state import DamagedSavepoint


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("operators",), None, "operators should be a list, not null"),
        (("operators", 1, "parallelism"), "2", "operators[1].parallelism should be a whole number from 1 to 32768, not the text '2'"),
        (("operators", 1, "parallelism"), 0, "operators[1].parallelism should be a whole number from 1 to 32768, not 0"),
        (("checkpoint_id",), 2**63, f"checkpoint_id should be a whole number from 0 to {2**63 - 1}, not {2**63}"),
        (("kind",), "canonical", "kind should be checkpoint or savepoint, not the text 'canonical'"),
        (("schemas", 0, "arrow"), "AAAA", "schemas[0] of the metadata is no schema of Arrow"),
        (("schemas",), [], "should be one of 0 schemas, not"),
        (("pipeline", "variables"), ["OUT"], "pipeline.variables should be a mapping, not a list"),
        (("completed_ms",), True, "completed_ms should be a whole number"),
        (("surplus",), 1, "the document should be a mapping without 'surplus'"),
    ],
)  # fmt: skip
def test_metadata_of_a_wrong_shape_say_where(place: tuple[Any, ...], value: Any, told: str, tmp_path: Path) -> None:
    savepoint = DamagedSavepoint(tmp_path)
    document = node = savepoint.whole()
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    savepoint.write(document)
    with pytest.raises(StateError) as caught:
        read_metadata(str(savepoint.path))
    assert told in caught.value.message


def test_a_broken_snapshot_is_listed_with_its_reason_beside_the_others(tmp_path: Path) -> None:
    savepoint = DamagedSavepoint(tmp_path)
    savepoint.write({**savepoint.whole(), "operators": 7})
    (folder,) = list_snapshots(str(tmp_path))
    broken, whole = folder.snapshots
    assert (broken.state, whole.state) == ("unreadable", "complete")
    assert "operators should be a list, not 7" in str(broken.problem)


def test_metadata_nested_without_end_are_refused(tmp_path: Path) -> None:
    savepoint = DamagedSavepoint(tmp_path)
    body = b'  "job_graph": ' + b"[" * 100_000 + b"]" * 100_000 + b"\n}\n"
    digest = hashlib.sha256(b"format_version=1\n" + body).hexdigest()
    head = f'{{\n  "format_version": 1,\n  "checksum": "sha256:{digest}",\n'
    (savepoint.path / "_metadata.json").write_bytes(head.encode() + body)
    with pytest.raises(StateError, match="no metadata of format 1"):
        read_metadata(str(savepoint.path))


def test_damaged_metadata_get_a_reason(tmp_path: Path) -> None:
    _try_damaged(DamagedSavepoint(tmp_path), random.Random("slice"), 10)


@pytest.mark.soak
def test_many_damaged_metadata_get_a_reason(tmp_path: Path) -> None:
    _try_damaged(DamagedSavepoint(tmp_path), random.Random(), 10_000)


def _try_damaged(savepoint: DamagedSavepoint, chance: random.Random, count: int) -> None:
    for _ in range(count):
        document = savepoint.damaged(chance)
        try:
            savepoint.read(document)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} for:\n{rendered(document).decode()}") from error


# ---- what connectors and hooks keep


def test_whole_state_of_connectors_is_gone_on_from(tmp_path: Path) -> None:
    savepoint = DamagedConnectorState(tmp_path)
    state = savepoint.whole()
    state["committables"] = []  # the files that they name are not there
    assert savepoint.resume(state) == []


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("enumerators", "watched", "pending"), None, "enumerator.pending should be a list, not null"),
        (("enumerators", "watched", "pending", 0, "id"), 7, "enumerator.pending[0].id should be a text, not 7"),
        (("enumerators", "watched", "seen"), [1], "enumerator.seen[0] should be a text, not 1"),
        (("enumerators", "units", "pending", 0, "position"), {}, "enumerator.pending[0].position should be a mapping with 'path'"),
        (("enumerators", "numbers", "next"), "4", "enumerator.next should be a whole number"),
        (("enumerators", "values"), {}, "enumerator should be a list, not a mapping"),
        (("positions", "watched", 0, "offset"), -1, "splits.0[0].position.offset should be a whole number"),
        (("positions", "units", 0), [], "splits.0[0].position should be a mapping, not a list"),
        (("committables", 0, 1), [], "committables[0].payload should be a mapping, not a list"),
        (("committables", 0, 1, "to"), 1, "committables.0[0].payload.to should be a text, not 1"),
        (("committables", 1, 1, "mark"), None, "committables.0[1].payload.mark should be a text, not null"),
        (("hooks", "offsets"), [3], "master hook 'offsets' could not be restored: hooks.offsets should be a mapping, not a list"),
        (("hooks", "offsets", "offset"), "3", "hooks.offsets.offset should be a whole number"),
    ],
)  # fmt: skip
def test_state_of_connectors_of_a_wrong_shape_says_where(
    place: tuple[Any, ...], value: Any, told: str, tmp_path: Path
) -> None:
    savepoint = DamagedConnectorState(tmp_path)
    node: Any = savepoint.whole()
    state = node
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    (problem,) = savepoint.resume(state)
    assert told in problem


def test_damaged_state_of_connectors_gets_a_reason(tmp_path: Path) -> None:
    _try_connectors(DamagedConnectorState(tmp_path), random.Random("slice"), 20)


@pytest.mark.soak
def test_much_damaged_state_of_connectors_gets_a_reason(tmp_path: Path) -> None:
    _try_connectors(DamagedConnectorState(tmp_path), random.Random(), 5_000)


def _try_connectors(savepoint: DamagedConnectorState, chance: random.Random, count: int) -> None:
    for _ in range(count):
        state = savepoint.damaged(chance)
        try:
            savepoint.resume(state)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} for:\n{json.dumps(state, indent=2)}") from error
