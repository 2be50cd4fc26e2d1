"""What `_metadata.json` looks like: every member with its type and bounds, and what must hold between members."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from flowrun.core import shapes

_MAX_SUBTASKS = 2**15
_count = shapes.integer()
_moment = shapes.integer(-(2**63))
_subtask = shapes.integer(0, _MAX_SUBTASKS - 1)
_parallelism = shapes.integer(1, _MAX_SUBTASKS)


def _is_subtask(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= 5 and int(key) < _MAX_SUBTASKS and key == str(int(key))


def _grouped(file: Any, place: str) -> None:
    """Offsets divide the rows among the key groups."""
    groups, offsets = file["groups"], file["offsets"]
    if groups is None:
        return
    if groups[0] > groups[1]:
        raise shapes.ShapeError(f"{place}.groups", "a first and a later end", groups)
    if len(offsets) != groups[1] - groups[0] + 1 or offsets[0] != 0 or offsets[-1] != file["rows"]:
        raise shapes.ShapeError(f"{place}.offsets", "one more than there are key groups, from 0 to the rows", offsets)
    if any(a > b for a, b in pairwise(offsets)):
        raise shapes.ShapeError(f"{place}.offsets", "in order", offsets)


_FILE = {
    "path": shapes.text,
    "size": _count,
    "rows": _count,
    "checksum": shapes.text,
    "groups": shapes.optional(shapes.pair(shapes.integer(0, _MAX_SUBTASKS), shapes.integer(0, _MAX_SUBTASKS))),
    "offsets": shapes.listed(_count),
}
_file = shapes.all_of(shapes.members(_FILE), _grouped)
_referred_file = shapes.all_of(
    shapes.members({**_FILE, "live": shapes.optional(shapes.listed(shapes.integer(0, 2**31 - 1)))}), _grouped
)


def _event_or_batch(element: dict[str, Any]) -> shapes.Shape:
    if "rows" in element:
        return shapes.members(
            {"rows": _count, "file": _count, "timestamps": shapes.boolean, "row_kinds": shapes.boolean}
        )
    return (
        shapes.members({"watermark": _moment}) if "watermark" in element else shapes.members({"idle": shapes.boolean})
    )


_keyed_table = shapes.members(
    {
        "schema": _count,
        "key": shapes.optional(shapes.listed(shapes.text)),
        "files": shapes.listed(_referred_file),
    }
)
_rows_by_subtask = shapes.mapping(_count, keys=_is_subtask, named="the number of a subtask")


def _as_many_rows(piece: Any, place: str) -> None:
    rows = sum(piece["rows"].values())
    if rows != (0 if piece["file"] is None else piece["file"]["rows"]):
        raise shapes.ShapeError(f"{place}.rows", "as many rows as the file has", rows)


_operator_state = shapes.all_of(
    shapes.members(
        {
            "state": shapes.text,
            "redistribution": shapes.one_of("split", "union", "broadcast"),
            "schema": _count,
            "rows": _rows_by_subtask,
            "file": shapes.optional(_file),
        }
    ),
    _as_many_rows,
)
_operator = shapes.members(
    {
        "operator_id": shapes.text,
        "uid": shapes.optional(shapes.text),
        "name": shapes.text,
        "vertex_id": shapes.text,
        "parallelism": _parallelism,
        "max_parallelism": _parallelism,
        "finished": shapes.boolean,
        "enumerator": shapes.anything,
        "subtasks": shapes.mapping(shapes.mapping(_keyed_table), keys=_is_subtask, named="the number of a subtask"),
        "operator_state": shapes.listed(_operator_state),
    }
)
_channel = {"data_set_id": shapes.text, "producer": _subtask, "consumer": _subtask}
_project = shapes.members(
    {
        "file_name": shapes.text,
        "directory": shapes.text,
        "text": shapes.text,
        "scripts": shapes.mapping(shapes.text),
    }
)
_pipeline = shapes.members(
    {
        "file_name": shapes.text,
        "directory": shapes.text,
        "variables": shapes.mapping(shapes.text),
        "overrides": shapes.mapping(shapes.text),
        "working_directory": shapes.text,
        "withheld": shapes.listed(shapes.text),
        "text": shapes.text,
    },
    later={
        "table_rows": shapes.mapping(_count),
        "catalog_tables": shapes.mapping(shapes.text),
        "project": _project,
    },
)
_document = shapes.members(
    {
        "format_version": _count,
        "checksum": shapes.text,
        "kind": shapes.one_of("checkpoint", "savepoint"),
        "checkpoint_id": _count,
        "triggered_ms": _moment,
        "completed_ms": _moment,
        "completed": shapes.text,
        "job_name": shapes.text,
        "lineage": shapes.text,
        "job_folder": shapes.text,
        "flowrun_version": shapes.text,
        "state_bytes": _count,
        "written_bytes": _count,
        "unaligned": shapes.boolean,
        "drained": shapes.boolean,
        "pipeline": shapes.optional(_pipeline),
        "operators": shapes.listed(_operator),
        "in_flight": shapes.listed(
            shapes.members(
                {**_channel, "received": shapes.boolean, "elements": shapes.listed(shapes.either(_event_or_batch))}
            )
        ),
        "in_flight_files": shapes.listed(shapes.members({"data_set_id": shapes.text, "schema": _count, "file": _file})),
        "progress": shapes.listed(
            shapes.members({**_channel, "watermark": _moment, "idle": shapes.boolean, "aligned": shapes.boolean})
        ),
        "schemas": shapes.listed(shapes.members({"columns": shapes.mapping(shapes.text), "arrow": shapes.text})),
        "hooks": shapes.mapping(shapes.anything),
        "job_graph": shapes.anything,
    },
    later={"ancestors": shapes.listed(shapes.pair(shapes.text, _count))},
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
            raise shapes.ShapeError(f"{place}.schema", f"one of {schemas} schemas", position)


def _check_elements(document: Any) -> None:
    """Batches in flight take all rows of the files, in order."""
    left = [f["file"]["rows"] for f in document["in_flight_files"]]
    for i, channel in enumerate(document["in_flight"]):
        for j, element in enumerate(channel["elements"]):
            if "rows" not in element:
                continue
            place = f"in_flight[{i}].elements[{j}]"
            if element["file"] >= len(left):
                raise shapes.ShapeError(f"{place}.file", f"one of {len(left)} files", element["file"])
            left[element["file"]] -= element["rows"]
            if left[element["file"]] < 0:
                raise shapes.ShapeError(f"{place}.rows", "rows that the file has", element["rows"])
