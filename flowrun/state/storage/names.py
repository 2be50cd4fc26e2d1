"""Names of folders and files of checkpoints."""

from __future__ import annotations

import re
import uuid

_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")
_CHECKPOINT = re.compile(r"chk-(\d+)")
_LONGEST = 60

STAGED_FOLDER = "staged"
"""The folder, below a job's folder, of rows that wait for their commit."""
METADATA_FILE = "_metadata.json"
"""Name of the file; a checkpoint exists when it exists."""

VIEWS_FILE = "views.sql"
"""Name of the DuckDB script beside it."""

LOCK_FILE = ".lock"

LEADER_FILE = ".leader"
"""Name of the file, in a job's folder, that its leading job manager holds a lock on."""

LEASES_FOLDER = "_leases"
"""Name of the folder, in a job's folder, of files that say who reads there."""

COMMITS_FOLDER = "_commits"
"""Name of the folder, in a job's folder, of logs of what sinks have committed."""


def slug(name: str) -> str:
    """A name as part of a file name.

    >>> slug("orders per minute -> (a, b)"), slug("日本")
    ('orders-per-minute-a-b', 'x')
    """
    return _UNSAFE.sub("-", name).strip("-.")[:_LONGEST].rstrip("-.") or "x"


def job_slug(job_name: str) -> str:
    """The name of a job's folder in the checkpoint directory.

    >>> job_slug("orders-per-minute")
    'orders-per-minute'
    """
    return slug(job_name)


def checkpoint_folder(checkpoint_id: int) -> str:
    """Name of a checkpoint's folder.

    >>> checkpoint_folder(7)
    'chk-7'
    """
    return f"chk-{checkpoint_id}"


def checkpoint_number(folder: str) -> int | None:
    """The number in a checkpoint folder's name; None for other names.

    >>> checkpoint_number("chk-7"), checkpoint_number("chk-7.old")
    (7, None)
    """
    match = _CHECKPOINT.fullmatch(folder)
    return None if match is None else int(match[1])


def state_file_name(operator_name: str, operator_id: str, state: str, subtask: int | None = None) -> str:
    """A new name for a state file: readable, and used by no other."""
    parts = [slug(operator_name), operator_id[:8], slug(state), *([] if subtask is None else [str(subtask)])]
    return "-".join([*parts, uuid.uuid4().hex[:8]]) + ".parquet"
