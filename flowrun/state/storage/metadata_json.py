"""A checkpoint's metadata as JSON and back. docs/state-format.md describes every member to other readers."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from flowrun.api.state import KeyGroupRange, OperatorState, Redistribution
from flowrun.core.elements import CheckpointKind
from flowrun.errors import StateError
from flowrun.masking import masked_json
from flowrun.state.checkpoints import (
    ChannelProgress,
    CheckpointMetadata,
    FileReference,
    InFlight,
    InFlightFile,
    KeyedTableState,
    OperatorMetadata,
    OperatorSubtaskState,
    PipelineText,
    ProjectText,
    StateFile,
)
from flowrun.state.commit_log import Fork
from flowrun.state.kept_names import plain_name
from flowrun.state.storage.documents import Document
from flowrun.state.storage.in_flight_files import read_in_flight, write_in_flight
from flowrun.state.storage.operator_files import OperatorStateFile, read_operator_state, write_operator_state
from flowrun.state.storage.state_path import StatePath

_SIMPLE = ("checkpoint_id", "triggered_ms", "completed_ms", "job_name", "lineage", "job_folder", "flowrun_version")
_MORE = ("state_bytes", "written_bytes", "unaligned", "drained")


@dataclass(slots=True)
class _Schemas:
    """Schemas are listed once, and referred to by position."""

    positions: dict[bytes, int] = field(default_factory=dict)
    listed: list[Document] = field(default_factory=list)

    def position(self, schema: pa.Schema) -> int:
        serialized = schema.serialize().to_pybytes()
        if serialized not in self.positions:
            self.positions[serialized] = len(self.listed)
            self.listed.append(
                {"columns": {f.name: str(f.type) for f in schema}, "arrow": base64.b64encode(serialized).decode()}
            )
        return self.positions[serialized]


def write_document(folder: StatePath, prefix: str, metadata: CheckpointMetadata) -> Document:
    """The document of a checkpoint; writes operator state and rows in flight into files in `folder`, whose paths begin with `prefix`.

    Raises:
        StateError: they cannot be written.
    """
    schemas = _Schemas()
    operators = [_operator(o, write_operator_state(folder, prefix, o), schemas) for o in metadata.operators.values()]
    files, channels = write_in_flight(folder, prefix, metadata.in_flight)
    return {
        "kind": metadata.kind.value,
        **{name: getattr(metadata, name) for name in _SIMPLE},
        "completed": _readable(metadata.completed_ms),
        **{name: getattr(metadata, name) for name in _MORE},
        "pipeline": None if metadata.pipeline is None else _pipeline(metadata.pipeline),
        "operators": operators,
        "in_flight": [
            {
                "data_set_id": i.data_set_id,
                "producer": i.producer,
                "consumer": i.consumer,
                "received": i.received,
                "elements": e,
            }
            for i, e in zip(metadata.in_flight, channels, strict=True)
        ],
        "in_flight_files": [
            {"data_set_id": f.data_set_id, "schema": schemas.position(f.schema), "file": _file(f.file)} for f in files
        ],
        "progress": [{f.name: getattr(p, f.name) for f in fields(p)} for p in metadata.progress],
        "schemas": schemas.listed,
        "ancestors": [[fork.lineage, fork.checkpoint_id] for fork in metadata.ancestors],
        "hooks": dict(metadata.hooks),
        "job_graph": masked_json(metadata.job_graph),
    }


def from_document(document: Document, root: StatePath) -> CheckpointMetadata:
    """The metadata; reads operator state and rows in flight from files, whose paths start at `root`.

    Args:
        document: of the shape that `metadata_shape` declares.
        root: see above.

    Raises:
        StateError: a schema in it cannot be read.
        DamagedFileError: one of them is missing, truncated or altered.
        StateError: a path or name in it leads elsewhere.
    """
    schemas = [_schema_of(position, s["arrow"]) for position, s in enumerate(document["schemas"])]
    files = [
        InFlightFile(f["data_set_id"], schemas[f["schema"]], _file_of(f["file"])) for f in document["in_flight_files"]
    ]
    elements = read_in_flight(root, files, [i["elements"] for i in document["in_flight"]])
    pipeline = document["pipeline"]
    plain_name(document["lineage"], "the lineage")
    return CheckpointMetadata(
        **{name: document[name] for name in (*_SIMPLE, *_MORE)},
        kind=CheckpointKind(document["kind"]),
        pipeline=None if pipeline is None else _pipeline_of(pipeline),
        job_graph=document["job_graph"],
        operators={o["operator_id"]: _operator_of(o, schemas, root) for o in document["operators"]},
        in_flight=tuple(
            InFlight(i["data_set_id"], i["producer"], i["consumer"], i["received"], e)
            for i, e in zip(document["in_flight"], elements, strict=True)
        ),
        progress=tuple(ChannelProgress(**p) for p in document["progress"]),
        hooks=document["hooks"],
        ancestors=tuple(Fork(lineage, number) for lineage, number in document.get("ancestors", ())),
        format_version=document["format_version"],
    )


def _schema_of(position: int, encoded: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded, validate=True)))
    except (ValueError, OSError, pa.ArrowException) as error:
        raise StateError(f"schemas[{position}] of the metadata is no schema of Arrow: {error}") from None


def _readable(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def _pipeline(pipeline: PipelineText) -> Document:
    return {
        "file_name": pipeline.file_name,
        "directory": pipeline.directory,
        "variables": dict(pipeline.variables),
        "overrides": dict(pipeline.overrides),
        "working_directory": pipeline.working_directory,
        "withheld": list(pipeline.withheld),
        "text": pipeline.text,
        **({"table_rows": dict(pipeline.table_rows)} if pipeline.table_rows else {}),
        **({"catalog_tables": dict(pipeline.catalog_tables)} if pipeline.catalog_tables else {}),
        **({"project": _project(pipeline.project)} if pipeline.project is not None else {}),
    }


def _project(project: ProjectText) -> Document:
    return {
        "file_name": project.file_name,
        "directory": project.directory,
        "text": project.text,
        "scripts": dict(project.scripts),
    }


def _pipeline_of(pipeline: Document) -> PipelineText:
    project = pipeline.get("project")
    return PipelineText(
        **{
            **pipeline,
            "withheld": tuple(pipeline["withheld"]),
            "project": None if project is None else ProjectText(**project),
        }
    )


# ---- operators


def _operator(operator: OperatorMetadata, pieces: Sequence[OperatorStateFile], schemas: _Schemas) -> Document:
    return {
        "operator_id": operator.operator_id,
        "uid": operator.uid,
        "name": operator.name,
        "vertex_id": operator.vertex_id,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "finished": operator.finished,
        "enumerator": operator.enumerator,
        "subtasks": {
            str(subtask): {name: _table(table, schemas) for name, table in state.keyed.items()}
            for subtask, state in operator.subtasks.items()
        },
        "operator_state": [
            {
                "state": piece.state,
                "redistribution": piece.redistribution.value,
                "schema": schemas.position(piece.schema),
                "rows": {str(subtask): count for subtask, count in piece.rows.items()},
                "file": None if piece.file is None else _file(piece.file),
            }
            for piece in pieces
        ],
    }


def _operator_of(document: Document, schemas: Sequence[pa.Schema], root: StatePath) -> OperatorMetadata:
    states: dict[int, dict[str, OperatorState]] = {}
    for piece in document["operator_state"]:
        rows = {int(subtask): count for subtask, count in piece["rows"].items()}
        file = None if piece["file"] is None else _file_of(piece["file"])
        source = OperatorStateFile(
            piece["state"], Redistribution(piece["redistribution"]), schemas[piece["schema"]], rows, file
        )
        for subtask, state in read_operator_state(root, source).items():
            states.setdefault(subtask, {})[piece["state"]] = state
    operator_id = document["operator_id"]
    return OperatorMetadata(
        **{n: document[n] for n in ("operator_id", "uid", "name", "vertex_id", "parallelism", "max_parallelism")},
        subtasks={
            int(subtask): OperatorSubtaskState(operator_id, _tables(tables, schemas), states.get(int(subtask), {}))
            for subtask, tables in document["subtasks"].items()
        },
        finished=document["finished"],
        enumerator=document["enumerator"],
    )


def _table(table: KeyedTableState, schemas: _Schemas) -> Document:
    return {
        "schema": schemas.position(table.schema),
        "key": None if table.key is None else list(table.key),
        "files": [{**_file(r.file), "live": None if r.live is None else list(r.live)} for r in table.files],
    }


def _tables(tables: Mapping[str, Document], schemas: Sequence[pa.Schema]) -> dict[str, KeyedTableState]:
    return {
        name: KeyedTableState(
            schemas[table["schema"]],
            tuple(FileReference(_file_of(f), None if f["live"] is None else tuple(f["live"])) for f in table["files"]),
            None if table["key"] is None else tuple(table["key"]),
        )
        for name, table in tables.items()
    }


def _file(file: StateFile) -> Document:
    return {
        "path": file.path,
        "size": file.size,
        "rows": file.rows,
        "checksum": file.checksum,
        "groups": None if file.groups is None else [file.groups.start, file.groups.stop],
        "offsets": list(file.offsets),
    }


def _file_of(document: Mapping[str, Any]) -> StateFile:
    groups = document["groups"]
    return StateFile(
        document["path"],
        document["size"],
        document["rows"],
        document["checksum"],
        None if groups is None else KeyGroupRange(*groups),
        tuple(document["offsets"]),
    )
