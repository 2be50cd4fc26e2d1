"""Where files are: paths, globs and URIs resolved to a file system, and the files that they mean."""

from __future__ import annotations

import fnmatch
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

import pyarrow as pa
import pyarrow.fs as pafs

from flowrun.core.record import record
from flowrun.errors import ConnectorError, OptionError, did_you_mean

_log = logging.getLogger(__name__)

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_GLOB = re.compile(r"[*?\[]")
_PARAMETERS = re.compile(r"\?[A-Za-z_]+=[^/?]*(?:/[^?]*)?$")
"""What stands behind the path of a URI: `?region=eu-central-1&scheme=http`; it is no pattern."""
_COMPRESSIONS = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd", ".lz4": "lz4"}


@record
class FoundFile:
    """A file of a source: its path on the file system, and its size in bytes."""

    path: str
    size: int


@record(slots=False)
class TablePath:
    """A path as the user wrote it: local (absolute or relative to the working directory) or a URI that pyarrow knows.

    Picklable: a relative path means the same file in a process with another working directory, and is still equal.

    Attributes:
        text: the path.
        folder: where it is relative to, if it comes from another process; empty: the working directory.
    """

    text: str
    folder: str = field(default="", compare=False, repr=False)

    def __reduce__(self) -> tuple[type[TablePath], tuple[str, str]]:
        return TablePath, (self.text, self.folder or os.getcwd() if self.is_local else "")

    @property
    def is_local(self) -> bool:
        """Whether it is on the local disk."""
        return not _SCHEME.match(self.text) or self.text.startswith("file://")

    @property
    def is_glob(self) -> bool:
        """Whether it is a pattern; an existing local path that looks like one is none."""
        return bool(_GLOB.search(self._parts[0])) and not (self.is_local and os.path.exists(self.local_path))

    @property
    def _parts(self) -> tuple[str, str]:
        """The text up to the parameters of a URI, and these."""
        found = None if self.is_local else _PARAMETERS.search(self.text)
        return (self.text, "") if found is None else (self.text[: found.start()], found[0])

    @property
    def local_path(self) -> str:
        """The absolute local path; meaningful if `is_local`."""
        return os.path.abspath(os.path.join(self.folder, os.path.expanduser(self.text.removeprefix("file://"))))

    def open(self) -> tuple[pafs.FileSystem, str]:
        """The file system and the path on it (of the folder before a glob's first wildcard).

        Raises:
            OptionError: the URI's scheme is unknown or the URI is malformed.
        """
        text, parameters = self._parts
        if self.is_glob:
            text = text[: _first_wildcard(text)].rpartition("/")[0] or ("/" if text.startswith("/") else ".")
        if self.is_local:
            return pafs.LocalFileSystem(), TablePath(text, self.folder).local_path
        try:
            filesystem, path = pafs.FileSystem.from_uri(text + parameters)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OptionError("path", f"path '{self.text}' is no location that can be opened: {error}") from error
        return filesystem, path

    def holds(self, path: str) -> bool:
        """Whether a path on the file system is this file, or below this folder or that of the glob, by its text."""
        _, base = self.open()
        base = base.rstrip("/")
        return path == base or (
            path.startswith(f"{base}/") and not {"", ".", ".."} & set(path[len(base) + 1 :].split("/"))
        )

    def glob_pattern(self) -> re.Pattern[str]:
        """What a path on the file system must match in full: `*` and `?` within one folder, `**` across folders."""
        _, base = self.open()
        rest = self.local_path if self.is_local else self._parts[0]
        head = rest[: _first_wildcard(rest)].rpartition("/")[0]
        return re.compile(re.escape(base.rstrip("/")) + _translate(rest[len(head) :]))


def _first_wildcard(text: str) -> int:
    match = _GLOB.search(text)
    return len(text) if match is None else match.start()


def _translate(glob: str) -> str:
    """A regular expression for a glob; `[!a]` negates.

    >>> bool(re.fullmatch(_translate("/*/x-[0-9].json"), "/a/x-1.json")), bool(re.fullmatch(_translate("[[a]"), "["))
    (True, True)
    """
    pattern, i = "", 0
    while i < len(glob):
        if glob.startswith("**/", i):
            pattern, i = pattern + "(?:.*/)?", i + 3
        elif glob.startswith("**", i):
            pattern, i = pattern + ".*", i + 2
        elif glob[i] in "*?":
            pattern, i = pattern + ("[^/]*" if glob[i] == "*" else "[^/]"), i + 1
        elif glob[i] == "[" and "]" in glob[i + 2 :]:
            end = glob.index("]", i + 2)
            pattern, i = pattern + _bracket(glob[i + 1 : end]), end + 1
        else:
            pattern, i = pattern + re.escape(glob[i]), i + 1
    return pattern


def _bracket(inside: str) -> str:
    """One character of some, as `fnmatch` reads them: `re` takes `[`, `&&` or `--` for more than themselves."""
    whole = fnmatch.translate(f"[{'!' + inside[1:] if inside[0] == '^' else inside}]")
    return whole[: whole.rindex(")") + 1]  # without the end of the text


def location_of(path: str) -> TablePath:
    """The location of a `path` option.

    Raises:
        OptionError: the text is empty, which would mean the working directory, or has a NUL character.
    """
    if not path.strip():
        raise OptionError("path", "option 'path' is empty", hint="write . for the working directory")
    if "\0" in path:
        raise OptionError("path", "option 'path' has a NUL character, which no path can have", hint="take it out")
    return TablePath(path)


def check_pattern(pattern: str | None) -> None:
    """Check `source.path.regex-pattern`.

    Raises:
        OptionError: it is no regular expression.
    """
    try:
        re.compile(pattern or "")
    except re.error as error:
        name = "source.path.regex-pattern"
        raise OptionError(name, f"option '{name}' is no regular expression: {error}, got '{pattern}'") from None


NO_FILE_HINT = "names that begin with '.' or '_' are ignored; set source.monitor-interval to wait for files"


_missing: ContextVar[list[TablePath] | None] = ContextVar("missing", default=None)


@contextmanager
def allowing_missing() -> Iterator[Sequence[TablePath]]:
    """In here a path with nothing there has no files, which is no error: of what is only explained. Gives those that were met."""
    met: list[TablePath] = []
    token = _missing.set(met)
    try:
        yield met
    finally:
        _missing.reset(token)


def is_allowed_to_miss(location: TablePath) -> bool:
    """Whether it is no error that nothing is there (see `allowing_missing`)."""
    met = _missing.get()
    if met is None:
        return False
    if location not in met:
        met.append(location)
    return True


def check_exists(location: TablePath, pattern: str | None = None) -> None:
    """Check a local path, as `flowrun validate` does.

    Raises:
        OptionError: nothing is there, or it may not be read; lists near matches of the same folder.
    """
    if not location.is_local:
        return
    if location.is_glob:
        if not list_files(location, pattern, may_be_missing=True) and not is_allowed_to_miss(location):
            raise OptionError("path", f"path '{location.text}' matches no file", hint=NO_FILE_HINT)
        return
    path = location.local_path
    if not os.path.exists(path):
        if is_allowed_to_miss(location):
            return
        raise OptionError("path", f"path '{location.text}' does not exist ({path})", hint=_neighbours(path))
    if not os.access(path, os.R_OK):
        raise OptionError("path", f"path '{location.text}' may not be read ({path})", hint="check its permissions")


def _neighbours(path: str) -> str:
    folder, name = os.path.split(path)
    if not os.path.isdir(folder):
        return f"there is no folder {folder} either"
    hint = did_you_mean(name, sorted(os.listdir(folder)))
    return hint or "relative paths start at the working directory"


def list_files(location: TablePath, pattern: str | None, *, may_be_missing: bool = False) -> list[FoundFile]:
    """The files that a location means, sorted by path: itself, all below a folder, or those that match a glob.

    Files and folders whose name begins with `.` or `_` are hidden, except where the location names them. Blocking.

    Args:
        location: file, folder or glob.
        pattern: regular expression that the full path must match, if any.
        may_be_missing: nothing being there yet is no error, but no files.

    Raises:
        ConnectorError: it does not exist or cannot be listed.
    """
    filesystem, base = location.open()
    try:
        info = filesystem.get_file_info(base)
        if info.type == pafs.FileType.File and not location.is_glob:
            return [FoundFile(base, info.size)]
        if info.type == pafs.FileType.NotFound:
            if may_be_missing or is_allowed_to_miss(location):
                return []
            hint = _neighbours(base) if location.is_local else None
            raise ConnectorError(f"path '{location.text}' does not exist ({base})", hint=hint)
        if location.is_local:
            entries = list(_walk(base, skip_unreadable_names=may_be_missing))
        else:
            selected = filesystem.get_file_info(pafs.FileSelector(base, recursive=True))
            entries = [FoundFile(f.path, f.size) for f in selected if f.type == pafs.FileType.File]
    except OSError as error:
        raise ConnectorError(f"path '{location.text}' cannot be listed: {_reason(error)}") from error
    glob = location.glob_pattern() if location.is_glob else None
    wanted = None if pattern is None else re.compile(pattern)
    found = [
        entry
        for entry in entries
        if not is_hidden(entry.path[len(base) :])
        and (glob is None or glob.fullmatch(entry.path))
        and (wanted is None or wanted.fullmatch(entry.path))
    ]
    return sorted(found, key=lambda f: f.path)


def _walk(base: str, *, skip_unreadable_names: bool) -> Iterator[FoundFile]:
    """All files below a local folder; links are followed, but not into a folder that they are in."""
    above: list[tuple[str, frozenset[tuple[int, int]]]] = [(base, frozenset())]
    while above:
        folder, known = above.pop()
        about = os.stat(folder)
        here = (about.st_dev, about.st_ino)
        if here in known:
            continue
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                if not _is_text(entry.name):
                    _name_cannot_be_read(folder, entry.name, skip=skip_unreadable_names)
                elif entry.is_dir():
                    above.append((f"{folder.rstrip('/')}/{entry.name}", known | {here}))
                elif entry.is_file():  # also false for a link to nothing
                    yield FoundFile(f"{folder.rstrip('/')}/{entry.name}", entry.stat().st_size)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _name_cannot_be_read(folder: str, name: str, *, skip: bool) -> None:
    """Say which file or folder it is: in the log, once, where files are watched for; else raise ConnectorError."""
    shown = f"{folder}/{name.encode(errors='surrogateescape')!r}"
    message = f"the name of {shown} is not UTF-8: it cannot be read"
    if not skip:
        raise ConnectorError(message, hint="rename it, or hide it with . or _ in front")
    if shown not in _unreadable_names:
        _unreadable_names.add(shown)
        _log.warning("%s; it is left out until it is renamed", message)


_unreadable_names: set[str] = set()
"""Those that were said already."""


def is_hidden(relative: str) -> bool:
    """Whether a part of a path begins with `.` or `_`. Folders `_column=value` are partitions, as they are to Spark.

    >>> is_hidden("a/.b/c.json"), is_hidden("_SUCCESS"), is_hidden("_day=2024-03-01/a.json")
    (True, True, False)
    """
    return any(p.startswith(".") or (p.startswith("_") and "=" not in p) for p in relative.split("/"))


def compression_of(path: str) -> str | None:
    """The codec that a file name's ending stands for; None for plain files.

    >>> compression_of("a/b.json.gz"), compression_of("b.json")
    ('gzip', None)
    """
    return _COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def open_error(path: str, error: OSError) -> ConnectorError:
    """The error for a file that cannot be opened or read."""
    return ConnectorError(f"{path} cannot be read: {_reason(error)}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error).splitlines()[0]


def relative_parts(path: str, base: str) -> Sequence[str]:
    """The folder names between `base` and a file below it."""
    return [p for p in path.removeprefix(base).split("/")[:-1] if p]
