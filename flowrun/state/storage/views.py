"""`views.sql`: a DuckDB script with one view a piece of state, which has exactly the rows that count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowrun.api.state import DELETED_COLUMN, KEY_GROUP_COLUMN
from flowrun.state.checkpoints import CheckpointMetadata, FileReference, KeyedTableState, OperatorMetadata
from flowrun.state.storage.documents import Document
from flowrun.state.storage.folding import SEGMENT_COLUMN

ROOT_VARIABLE = "flowrun_root"
"""DuckDB variable: the folder in which the paths of the files start. Set before the script runs, it says where the folder is now."""


def views_script(document: Document, metadata: CheckpointMetadata, root: str) -> str:
    """The script of a checkpoint.

    Args:
        document: that is written beside it.
        metadata: that it was made of.
        root: where the paths of its files start, at the time.
    """
    lines = [
        f"-- State of job {_comment(metadata.job_name)}, {metadata.kind.value} {metadata.checkpoint_id}, as DuckDB views.",
        f"-- In DuckDB: .read views.sql   If this folder was moved, first: SET VARIABLE {ROOT_VARIABLE} = '/its/path/now';",
        f"SET VARIABLE {ROOT_VARIABLE} = coalesce(getvariable('{ROOT_VARIABLE}'), {_text(root)});",
    ]
    for name, query in _named(_queries(document, metadata)):
        if query is None:
            lines.append(f"-- {_comment(name)} has no rows")
        else:
            lines.append(f"CREATE OR REPLACE TEMP VIEW {_name(name)} AS\n{query};")
    return "\n".join(lines) + "\n"


def _queries(document: Document, metadata: CheckpointMetadata) -> Iterator[tuple[str, str, str | None]]:
    """Operator id, name and query of each view."""
    for operator in metadata.operators.values():
        for state in dict.fromkeys(name for s in operator.subtasks.values() for name in s.keyed):
            yield operator.operator_id, f"{operator.name}.{state}", _keyed(_tables(operator, state))
    for described in document["operators"]:
        for piece in described["operator_state"]:
            file = piece["file"]
            query = None if file is None else f"  SELECT * FROM {_scan([file['path']])}"
            yield described["operator_id"], f"{described['name']}.{piece['state']}", query
    paths: dict[tuple[str, int], list[str]] = {}
    for flight in document["in_flight_files"]:
        paths.setdefault((flight["data_set_id"], flight["schema"]), []).append(flight["file"]["path"])
    for (data_set_id, _), files in paths.items():
        yield data_set_id, "in_flight", f"  SELECT * FROM {_scan(files)}"


def _named(queries: Iterator[tuple[str, str, str | None]]) -> Iterator[tuple[str, str | None]]:
    """Views with names of their own: of two alike the second gets the beginning of its operator's id. DuckDB ignores case."""
    seen: set[str] = set()
    for owner, name, query in queries:
        unique, number = name, 0
        while unique.casefold() in seen:
            unique = f"{name}#{owner[:8]}" + (f"-{number}" if number else "")
            number += 1
        seen.add(unique.casefold())
        yield unique, query


def _tables(operator: OperatorMetadata, state: str) -> list[KeyedTableState]:
    return [s.keyed[state] for _, s in sorted(operator.subtasks.items()) if state in s.keyed]


def _keyed(tables: Sequence[KeyedTableState]) -> str | None:
    files = [r for t in tables for r in t.files]
    if not files:
        return None
    whole = [r.file.path for r in files if r.live is None]
    parts = [f"  SELECT * FROM {_scan(whole)}"] if whole else []
    parts += [_live(r) for r in files if r.live is not None]
    rows = "\n  UNION ALL BY NAME\n".join(parts)
    if len(whole) == len(files):
        return rows
    key = tables[0].key
    if key is None:
        return f"  SELECT * EXCLUDE ({SEGMENT_COLUMN}) FROM (\n{rows})"
    names = ", ".join(_name(n) for n in (KEY_GROUP_COLUMN, *key))
    newest = f"row_number() OVER (PARTITION BY {names} ORDER BY {SEGMENT_COLUMN} DESC)"
    inner = f"  SELECT * FROM (\n{rows})\n  QUALIFY {newest} = 1"
    return f"  SELECT * EXCLUDE ({SEGMENT_COLUMN}, {DELETED_COLUMN}) FROM (\n{inner})\n  WHERE NOT {DELETED_COLUMN}"


def _live(reference: FileReference) -> str:
    numbers = ", ".join(map(str, reference.live or ()))
    return f"  SELECT * FROM {_scan([reference.file.path])} WHERE {SEGMENT_COLUMN} IN ({numbers})"


def _scan(paths: Sequence[str]) -> str:
    files = ", ".join(f"getvariable('{ROOT_VARIABLE}') || {_text('/' + path)}" for path in paths)
    return f"read_parquet([{files}])"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _comment(text: str) -> str:
    return " ".join(text.split())
