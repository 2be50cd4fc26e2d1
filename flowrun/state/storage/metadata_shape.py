"""What `_metadata.json` looks like: every member with its type and bounds, and what must hold between members."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from flowrun.core.shapes import (
    Shape,
    ShapeError,
    all_of,
    anything,
    boolean,
    either,
    integer,
    listed,
    mapping,
    members,
    one_of,
    optional,
    pair,
    text,
)

_MAX_SUBTASKS = 2**15
_count = integer()
_moment = integer(-(2**63))
_subtask = integer(0, _MAX_SUBTASKS - 1)
_parallelism = integer(1, _MAX_SUBTASKS)


def _is_subtask(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= 5 and int(key) < _MAX_SUBTASKS and key == str(int(key))


def _grouped(file: Any, place: str) -> None:
    """Offsets divide the rows among the key groups."""
    groups, offsets = file["groups"], file["offsets"]
    if groups is None:
        return
    if groups[0] > groups[1]:
        raise ShapeError(f"{place}.groups", "a first and a later end", groups)
    if len(offsets) != groups[1] - groups[0] + 1 or offsets[0] != 0 or offsets[-1] != file["rows"]:
        raise ShapeError(f"{place}.offsets", "one more than there are key groups, from 0 to the rows", offsets)
    if any(a > b for a, b in pairwise(offsets)):
        raise ShapeError(f"{place}.offsets", "in order", offsets)


_FILE = {
    "path": text,
    "size": _count,
    "rows": _count,
    "checksum": text,
    "groups": optional(pair(integer(0, _MAX_SUBTASKS), integer(0, _MAX_SUBTASKS))),
    "offsets": listed(_count),
}
_file = all_of(members(_FILE), _grouped)
_referred_file = all_of(members({**_FILE, "live": optional(listed(integer(0, 2**31 - 1)))}), _grouped)


def _event_or_batch(element: dict[str, Any]) -> Shape:
    if "rows" in element:
        return members({"rows": _count, "file": _count, "timestamps": boolean, "row_kinds": boolean})
    return members({"watermark": _moment}) if "watermark" in element else members({"idle": boolean})


_keyed_table = members(
    {
        "schema": _count,
        "key": optional(listed(text)),
        "files": listed(_referred_file),
    }
)
_rows_by_subtask = mapping(_count, keys=_is_subtask, named="the number of a subtask")


def _as_many_rows(piece: Any, place: str) -> None:
    rows = sum(piece["rows"].values())
    if rows != (0 if piece["file"] is None else piece["file"]["rows"]):
        raise ShapeError(f"{place}.rows", "as many rows as the file has", rows)


_operator_state = all_of(
    members(
        {
            "state": text,
            "redistribution": one_of("split", "union", "broadcast"),
            "schema": _count,
            "rows": _rows_by_subtask,
            "file": optional(_file),
        }
    ),
    _as_many_rows,
)
_operator = members(
    {
        "operator_id": text,
        "uid": optional(text),
        "name": text,
        "vertex_id": text,
        "parallelism": _parallelism,
        "max_parallelism": _parallelism,
        "finished": boolean,
        "enumerator": anything,
        "subtasks": mapping(mapping(_keyed_table), keys=_is_subtask, named="the number of a subtask"),
        "operator_state": listed(_operator_state),
    }
)
_channel = {"data_set_id": text, "producer": _subtask, "consumer": _subtask}
_pipeline = members(
    {
        "file_name": text,
        "directory": text,
        "variables": mapping(text),
        "overrides": mapping(text),
        "working_directory": text,
        "withheld": listed(text),
        "text": text,
    },
    later={"table_rows": mapping(_count)},
)
_document = members(
    {
        "format_version": _count,
        "checksum": text,
        "kind": one_of("checkpoint", "savepoint"),
        "checkpoint_id": _count,
        "triggered_ms": _moment,
        "completed_ms": _moment,
        "completed": text,
        "job_name": text,
        "lineage": text,
        "job_folder": text,
        "flowrun_version": text,
        "state_bytes": _count,
        "written_bytes": _count,
        "unaligned": boolean,
        "drained": boolean,
        "pipeline": optional(_pipeline),
        "operators": listed(_operator),
        "in_flight": listed(members({**_channel, "received": boolean, "elements": listed(either(_event_or_batch))})),
        "in_flight_files": listed(members({"data_set_id": text, "schema": _count, "file": _file})),
        "progress": listed(members({**_channel, "watermark": _moment, "idle": boolean, "aligned": boolean})),
        "schemas": listed(members({"columns": mapping(text), "arrow": text})),
        "hooks": mapping(anything),
        "job_graph": anything,
    },
    later={"ancestors": listed(pair(text, _count))},
)


def check_shape(document: Any) -> None:
    """Whether a document is the metadata of a checkpoint; says nothing of the files that it names.

    Raises:
        ShapeError: it is not: says which member is wrong.
    """
    _document(document, "")
    _check_positions(document)
    _check_elements(document)


def _check_positions(document: Any) -> None:
    """Schemas are named by their positions."""
    schemas = len(document["schemas"])
    named = [(f"in_flight_files[{i}]", f["schema"]) for i, f in enumerate(document["in_flight_files"])]
    for i, operator in enumerate(document["operators"]):
        place = f"operators[{i}]"
        named += [(f"{place}.operator_state[{j}]", s["schema"]) for j, s in enumerate(operator["operator_state"])]
        for subtask, tables in operator["subtasks"].items():
            named += [(f"{place}.subtasks.{subtask}.{name}", table["schema"]) for name, table in tables.items()]
    for place, position in named:
        if position >= schemas:
            raise ShapeError(f"{place}.schema", f"one of {schemas} schemas", position)


def _check_elements(document: Any) -> None:
    """Batches in flight take all rows of the files, in order."""
    left = [f["file"]["rows"] for f in document["in_flight_files"]]
    for i, channel in enumerate(document["in_flight"]):
        for j, element in enumerate(channel["elements"]):
            if "rows" not in element:
                continue
            place = f"in_flight[{i}].elements[{j}]"
            if element["file"] >= len(left):
                raise ShapeError(f"{place}.file", f"one of {len(left)} files", element["file"])
            left[element["file"]] -= element["rows"]
            if left[element["file"]] < 0:
                raise ShapeError(f"{place}.rows", "rows that the file has", element["rows"])
