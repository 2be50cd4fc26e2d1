"""Which jobs of this user run on this machine, and how to reach them: one small file a job, in a folder that only this user can read.

The folder is `$FLOWRUN_RUNTIME_DIR`, else `flowrun` below `$XDG_RUNTIME_DIR`, else `flowrun/run` below `$XDG_STATE_HOME` or
`~/.local/state`. Whoever looks for jobs looks in all of these, as one terminal may have the variables and another not.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path

from flowrun.core.record import record
from flowrun.errors import ClusterError

LOOPBACK = "127.0.0.1"
"""Address of every endpoint."""
_SUFFIX = ".json"
_LEFT = ".left"
"""Of files that one process leaves for another."""
_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600
_OTHERS = 0o077
_MOST_BYTES = 65_536
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_PORTS = 65_536


@record
class JobEntry:
    """A running job as it is registered.

    Attributes:
        job_id: unique to the run.
        name: of the pipeline.
        file: the pipeline's file, for people.
        pid: of its process.
        process_start: tells the process from a later one with the same pid; empty where the system does not say.
        host: machine that the process runs on: folders may be shared between machines, the endpoint is not.
        port: of its endpoint on 127.0.0.1.
        token: that the endpoint asks for.
        started_ms: epoch ms.
        page: where the user wants it to be reached with the same token: `http://127.0.0.1:8081/`; empty: at its port.
    """

    job_id: str
    name: str
    file: str
    pid: int
    process_start: str
    host: str
    port: int
    token: str
    started_ms: int
    page: str = ""


def new_entry(job_id: str, name: str, file: str, port: int, started_ms: int) -> JobEntry:
    """An entry for a job of this process, with a new random token."""
    pid = os.getpid()
    host = socket.gethostname()
    return JobEntry(job_id, name, file, pid, process_start(pid) or "", host, port, new_token(), started_ms)


def new_token() -> str:
    """64 digits of the system's random numbers: the source that `secrets` uses, whose import would cost each run some milliseconds."""
    return os.urandom(32).hex()


def runtime_folders(environment: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Where jobs of this user may be registered; the first one is for new jobs.

    >>> [str(p) for p in runtime_folders({"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/home/ada"})]
    ['/run/user/7/flowrun', '/home/ada/.local/state/flowrun/run']
    """
    given = os.environ if environment is None else environment
    if own := given.get("FLOWRUN_RUNTIME_DIR"):
        return (Path(own),)
    found = [Path(session) / "flowrun"] if os.path.isabs(session := given.get("XDG_RUNTIME_DIR", "")) else []
    state = given.get("XDG_STATE_HOME", "")
    home = given.get("HOME", "")
    if os.path.isabs(state):
        found.append(Path(state) / "flowrun" / "run")
    elif home:
        found.append(Path(home) / ".local" / "state" / "flowrun" / "run")
    return tuple(found)


class JobRegistry:
    """The entries of one user's jobs.

    Args:
        folders: as `runtime_folders` gives them.
    """

    def __init__(self, folders: Sequence[Path] | None = None) -> None:
        self._folders = runtime_folders() if folders is None else tuple(folders)

    def add(self, entry: JobEntry) -> None:
        """Register a job in the first folder that can be used: its file appears whole, readable by this user only.

        Raises:
            ClusterError: there is no folder that only this user can use.
        """
        self._write(entry.job_id + _SUFFIX, json.dumps(asdict(entry)).encode())

    def remove(self, job_id: str) -> None:
        """Forget a job; no error if it is not there."""
        for folder in self._folders:
            with suppress(OSError, ClusterError), _opened(folder) as handle:
                os.unlink(job_id + _SUFFIX, dir_fd=handle)

    def leave(self, name: str, content: bytes) -> None:
        """Leave something for another process of this user, which takes it; readable by this user only.

        Raises:
            ClusterError: there is no folder that only this user can use.
        """
        self._write(name + _LEFT, content)

    def take(self, name: str) -> bytes | None:
        """What another process of this user has left under a name, which is gone then; None: nothing is there."""
        for folder in self._folders:
            with suppress(OSError, ClusterError), _opened(folder) as handle:
                content = _content(handle, name + _LEFT)
                if content is not None:
                    os.unlink(name + _LEFT, dir_fd=handle)
                    return content
        return None

    def left(self, prefix: str) -> list[bytes]:
        """What other processes of this user have left under names that begin so; it stays there."""
        found: dict[str, bytes] = {}
        for folder in self._folders:
            with suppress(OSError, ClusterError), _opened(folder) as handle:
                for name in sorted(os.listdir(handle)):
                    if name.startswith(prefix) and name.endswith(_LEFT) and (content := _content(handle, name)):
                        found.setdefault(name, content)
        return list(found.values())

    def entries(self) -> tuple[JobEntry, ...]:
        """All jobs of this machine whose process lives, oldest first. Files of dead ones are deleted.

        Raises:
            ClusterError: no folder can be used, since others can use it too.
        """
        found: dict[str, JobEntry] = {}
        refusal: ClusterError | None = None
        usable = 0
        for folder in self._folders:
            try:
                with _opened(folder) as handle:
                    for entry in _entries(handle):
                        found.setdefault(entry.job_id, entry)
                usable += 1
            except FileNotFoundError:  # no job was ever registered there
                usable += 1
            except OSError as error:
                refusal = refusal or _unusable(folder, error.strerror or str(error))
            except ClusterError as error:
                refusal = refusal or error
        if refusal is not None and not usable:
            raise refusal
        return tuple(sorted(found.values(), key=lambda e: (e.started_ms, e.job_id)))

    def _write(self, name: str, content: bytes) -> None:
        """Write a private file into the first folder that can be used. Raises ClusterError: there is none."""
        refusal: ClusterError | None = None
        for folder in self._folders:
            try:
                _make_private(folder)
                with _opened(folder) as handle:
                    _write(handle, name, content)
            except OSError as error:
                refusal = refusal or _unusable(folder, error.strerror or str(error))
            except ClusterError as error:
                refusal = refusal or error
            else:
                return
        raise refusal or ClusterError(
            "there is no folder for running jobs",
            hint="set HOME, or FLOWRUN_RUNTIME_DIR to a folder that is yours alone",
        )


def _make_private(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE_FOLDER)
    with suppress(FileExistsError):
        folder.mkdir(mode=_PRIVATE_FOLDER)


def process_start(pid: int) -> str | None:
    """What tells a process from a later one with its pid; None if it does not live or the system does not say.

    On Linux the boot id and the start time in ticks since boot (proc(5), field 22 of stat).
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
    fields_after_name = text.rpartition(")")[2].split()
    if fields_after_name[0] == "Z":  # has ended, and its parent has not looked yet
        return None
    return f"{boot}/{fields_after_name[19]}"


def _is_alive(entry: JobEntry) -> bool:
    if entry.process_start:
        return process_start(entry.pid) == entry.process_start
    try:
        os.kill(entry.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _entries(handle: int) -> Iterator[JobEntry]:
    """The live entries of an open folder."""
    host = socket.gethostname()
    for name in sorted(os.listdir(handle)):
        if not name.endswith(_SUFFIX) or name.startswith("."):
            continue
        entry = _read(handle, name)
        if entry is None or entry.host != host:
            continue
        if _is_alive(entry):
            yield entry
        else:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=handle)


def _read(handle: int, name: str) -> JobEntry | None:
    """An entry; None for what is none, belongs to somebody else, or has gone meanwhile."""
    data = _content(handle, name)
    if data is None:
        return None
    try:
        values = json.loads(data)
        entry = JobEntry(**{f.name: values[f.name] for f in fields(JobEntry) if f.name in values})
    except (ValueError, KeyError, TypeError):
        return None
    known = all(isinstance(getattr(entry, n), t) for t, ns in _KINDS.items() for n in ns)
    return entry if known and _is_usable(entry) else None


def _content(handle: int, name: str) -> bytes | None:
    """The bytes of a file of this user in an open folder; None for what is none, or has gone."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            return None
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)


def _is_usable(entry: JobEntry) -> bool:
    """Whether a request can be made of it: token and id become parts of a request's head."""
    return all(_PLAIN.fullmatch(part) for part in (entry.job_id, entry.token)) and 0 < entry.port < _PORTS


_KINDS: Mapping[type, tuple[str, ...]] = {
    str: ("job_id", "name", "file", "process_start", "host", "token", "page"),
    int: ("pid", "port", "started_ms"),
}


def _write(handle: int, name: str, data: bytes) -> None:
    """A private file that appears whole."""
    temporary = f".{name}.{os.urandom(4).hex()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _PRIVATE_FILE, dir_fd=handle)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.rename(temporary, name, src_dir_fd=handle, dst_dir_fd=handle)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=handle)
        raise


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A handle to a folder that is this user's alone; everything is done through it, so that no later swap of the path matters.

    Raises:
        OSError: it is not there or is no folder.
        ClusterError: it belongs to somebody else or others may use it.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        about = os.fstat(handle)
        if about.st_uid != os.geteuid():
            raise _unusable(folder, f"it belongs to user {about.st_uid}, not to you (user {os.geteuid()})")
        if about.st_mode & _OTHERS:
            mode = stat.S_IMODE(about.st_mode)
            raise _unusable(folder, f"others may use it (mode {mode:04o}); run: chmod 700 {folder}")
        yield handle
    finally:
        os.close(handle)


def _unusable(folder: Path, reason: str) -> ClusterError:
    return ClusterError(
        f"the folder of running jobs, '{folder}', cannot be used: {reason}",
        hint="FLOWRUN_RUNTIME_DIR names another folder, which must be yours alone",
    )
