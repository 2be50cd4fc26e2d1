"""Files that travel with a job, by what they contain: who submitted it has them, and each worker gets those that it does not know yet.

    job manager: JobFiles ◀──read_file(SHA-256)── worker: FileCache ──▶ a folder of the job's own

A file is known by the SHA-256 of its content, so a change of the user's folder after the submission reaches no worker, a file that many
jobs share is fetched once, and content that is not what was announced is refused. Folders are of this user only (mode 0700).
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from flowrun.core.record import record
from flowrun.core.user_cache import ABANDONED_AFTER_S, NEW, cache_folders, entries, make_room, private_folder
from flowrun.errors import ClusterError
from flowrun.runtime.cluster_messages import JobFile

MOST_FILES = 1_000
"""Of one job."""
MOST_FILE_BYTES = 8 << 20
MOST_BYTES = 32 << 20
"""Of all files of one job."""
CACHE_BYTES = 256 << 20
"""What a user's cache keeps: what was used last."""

SUFFIX = ".py"
"""Of the files that travel: Python modules and nothing else."""

FetchFile = Callable[[str], bytes]
"""Gives the content of a digest, from who submitted the job. Blocks. Raises ClusterError."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_LOCK = ".lock"

_log = logging.getLogger(__name__)


@record(eq=False)
class JobFiles:
    """The files of a job where they come from: a `JobFilesGateway`.

    Attributes:
        files: all of them.
        contents: content by digest.
    """

    files: tuple[JobFile, ...] = ()
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def read_file(self, digest: str) -> bytes:
        """See `JobFilesGateway`."""
        content = self.contents.get(digest)
        if content is None:
            raise ClusterError("the job has no such file")
        return content


NO_FILES = JobFiles()


def job_files(contents: Mapping[str, bytes]) -> JobFiles:
    """Files from path → content. Raises ClusterError as `check_files`.

    >>> [(file.path, file.size) for file in job_files({"b.py": b"x = 1", "a/c.py": b""}).files]
    [('a/c.py', 0), ('b.py', 5)]
    """
    files = tuple(JobFile(path, digest_of(content), len(content)) for path, content in sorted(contents.items()))
    check_files(files)
    return JobFiles(files, {file.digest: contents[file.path] for file in files})


def fetch_files(files: tuple[JobFile, ...], fetch: FetchFile) -> JobFiles:
    """Files with their contents, for a process that gives them to others.

    Raises:
        ClusterError: one is refused, or cannot be fetched.
    """
    check_files(files)
    contents: dict[str, bytes] = {}
    for file in files:
        if file.digest not in contents:
            contents[file.digest] = checked_content(file, fetch(file.digest))
    return JobFiles(files, contents)


def checked_content(file: JobFile, content: bytes) -> bytes:
    """The content that came for a file. Raises ClusterError: it is not what was announced."""
    if len(content) != file.size or digest_of(content) != file.digest:
        raise ClusterError(
            f"the content of {file.path} is refused: {len(content)} bytes came that are not those that the job announced"
        )
    return content


def digest_of(content: bytes) -> str:
    """SHA-256, as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def check_files(files: Iterable[JobFile]) -> None:
    """Pass if files may be sent and laid out.

    Raises:
        ClusterError: there are too many, they are too large, or one would lie elsewhere than in its folder.
    """
    listed = list(files)
    total = sum(file.size for file in listed)
    if len(listed) > MOST_FILES or total > MOST_BYTES:
        raise ClusterError(
            f"the Python modules beside the pipeline are too much to travel with it: {len(listed)} files of {total} bytes; "
            f"the limits are {MOST_FILES} files and {MOST_BYTES} bytes",
            hint="install them as a package on all machines, and name it: settings: {functions: [PACKAGE]}",
        )
    for file in listed:
        if not 0 <= file.size <= MOST_FILE_BYTES:
            raise ClusterError(
                f"the module {file.path} has {file.size} bytes; one that travels has at most {MOST_FILE_BYTES}",
                hint="put its data into a file that all machines see",
            )
        if not _is_below(file.path) or not _DIGEST.fullmatch(file.digest):
            raise ClusterError(f"a file of the job is refused: {file.path!r} is no module below the pipeline's folder")
    twice = [path for path, count in Counter(file.path for file in listed).items() if count > 1]
    if twice:
        raise ClusterError(f"a file of the job is refused: {twice[0]!r} comes twice")


def _is_below(path: str) -> bool:
    parts = path.split("/")
    return (
        path.isprintable()
        and "\\" not in path
        and path.lower().endswith(SUFFIX)
        and all(part and part not in (".", "..") and len(os.fsencode(part)) <= 255 for part in parts)
    )


class FileCache:
    """Content by digest in a folder of this user; processes share it. What was not used for longest is deleted first.

    Args:
        folder: made if it is not there, for this user only.
        most_bytes: what is kept.

    Raises:
        ClusterError: the folder cannot be made, or other users can enter it.
    """

    def __init__(self, folder: Path, most_bytes: int = CACHE_BYTES) -> None:
        _private(folder, 0o022)
        self.folder = _private(folder / "files")
        self.layouts = _private(folder / "jobs")
        self._most_bytes = most_bytes

    def content(self, file: JobFile, fetch: FetchFile) -> bytes:
        """What a file contains, from here or fetched.

        Raises:
            ClusterError: what came is not what was announced; or as `fetch`.
        """
        kept = self._read(file.digest)
        if kept is not None:
            return kept
        content = checked_content(file, fetch(file.digest))
        try:
            self._keep(file.digest, content)
        except OSError as error:  # such as a full disk: it is fetched again next time
            _log.warning("%s cannot be kept in %s: %s", file.path, self.folder, error.strerror or error)
        return content

    def lay_out(self, files: tuple[JobFile, ...], fetch: FetchFile) -> Path:
        """A new folder with these files; it is there while this process lives.

        Raises:
            ClusterError: a file is refused, cannot be fetched, or cannot be written.
        """
        check_files(files)
        self.sweep()
        contents = {file.path: self.content(file, fetch) for file in files}
        try:
            folder = Path(tempfile.mkdtemp(dir=self.layouts))
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)  # until the process ends: the descriptor is never closed
            for path, content in contents.items():
                place = folder / path
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write_new(place, content)
        except OSError as error:
            raise ClusterError(
                f"the modules of a job cannot be written to {self.layouts}: {error.strerror or error}",
                hint="make room there, or name another folder in FLOWRUN_CACHE_DIR",
            ) from error
        return folder

    def sweep(self) -> None:
        """Delete the folders of jobs whose processes have ended."""
        for folder in entries(self.layouts):
            try:
                lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            except OSError:  # it is being made, or its maker died then
                if _age_s(folder) > ABANDONED_AFTER_S:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # its process lives
                continue
            finally:
                os.close(lock)
            shutil.rmtree(folder, ignore_errors=True)

    def _read(self, digest: str) -> bytes | None:
        place = self.folder / digest
        try:
            with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                content = file.read(MOST_FILE_BYTES + 1)
            if digest_of(content) == digest:
                os.utime(place)
                return content
            _log.warning("%s is damaged, and is fetched again", place)
            place.unlink()
        except OSError:
            pass
        return None

    def _keep(self, digest: str, content: bytes) -> None:
        new = self.folder / f"{NEW}{secrets.token_hex(8)}"
        try:
            _write_new(new, content)
            os.replace(new, self.folder / digest)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise
        make_room(self.folder, self._most_bytes)


def users_cache() -> FileCache:
    """The cache in FLOWRUN_CACHE_DIR, else in the user's folder for such things, else in that of temporary files.

    Raises:
        ClusterError: none of them can be used.
    """
    *others, last = cache_folders()
    for folder in others:
        with suppress(ClusterError):  # a folder that cannot be written to
            return FileCache(folder)
    return FileCache(last)


def _private(folder: Path, forbidden: int = 0o077) -> Path:
    """See `private_folder`."""
    try:
        return private_folder(folder, forbidden)
    except PermissionError as error:
        if error.strerror is not None:
            raise _unusable(folder, error) from error
        raise ClusterError(
            f"cannot keep files of jobs in {folder}: other users may change what is in it",
            hint=f"`chmod 700 {folder}`, or name another folder in FLOWRUN_CACHE_DIR",
        ) from error
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(folder: Path, error: OSError) -> ClusterError:
    return ClusterError(
        f"cannot keep files of jobs in {folder}: {error.strerror or error}",
        hint="name another folder in FLOWRUN_CACHE_DIR",
    )


def _write_new(place: Path, content: bytes) -> None:
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)


def _age_s(folder: Path) -> float:
    try:
        return time.time() - folder.lstat().st_mtime
    except OSError:
        return 0.0
