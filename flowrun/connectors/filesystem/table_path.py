"""Resolves paths, globs and URIs to a file system, and lists the files that they mean."""

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

from flowrun.api.connector import PlaceMatching, TablePlace
from flowrun.api.refusals import retryable_io
from flowrun.connectors.filesystem.store_options import Store, store_of
from flowrun.core.options import Options
from flowrun.core.record import record
from flowrun.core.store_uris import with_time_limit
from flowrun.errors import ConnectorError, OptionError, did_you_mean, near_matches

_log = logging.getLogger(__name__)

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_SCHEMES = ("file", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
_WITH_BUCKET = ("s3", "s3a", "gs", "gcs")
_FILE_OF_JAVA = re.compile(r"^file:/(?!/)")
_GLOB = re.compile(r"[*?\[]")
_PARAMETERS = re.compile(r"\?[A-Za-z_]+=[^/?]*(?:/[^?]*)?$")
"""The parameters behind the path of a URI, such as `?region=eu-central-1&scheme=http`: their `?` is no wildcard."""
_GOOGLES = re.compile(r"google::cloud::Status\((.*?)(?: error_info=.*)?\)$")
"""What Google's client says: the reason, and behind it what its own calls were."""
_COMPRESSIONS = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd", ".lz4": "lz4"}


@record
class FoundFile:
    """A file of a source: its path on the file system, and its size in bytes."""

    path: str
    size: int


@record(slots=False)
class TablePath:
    """A path as the user wrote it: a local one, absolute or relative to the working directory, or a URI that pyarrow knows.

    After it is pickled, a relative path means the same file in a process with another working directory, and is still equal.

    Attributes:
        text: the path.
        folder: the folder that a relative path from another process starts from; empty: the working directory.
        store: the object store of a URI, as options describe it; None: the URI and the environment say where it is.
    """

    text: str
    folder: str = field(default="", compare=False, repr=False)
    store: Store | None = None

    def __reduce__(self) -> tuple[type[TablePath], tuple[str, str, Store | None]]:
        return TablePath, (self.text, self.folder or os.getcwd() if self.is_local else "", self.store)

    @property
    def is_local(self) -> bool:
        """Whether the path is on the local disk."""
        return not _SCHEME.match(self.text) or self.text.startswith("file://")

    @property
    def is_glob(self) -> bool:
        """Whether the path is a glob. An existing local path with wildcards in its name is none."""
        return bool(_GLOB.search(self._parts[0])) and not (self.is_local and os.path.exists(self.local_path))

    @property
    def _parts(self) -> tuple[str, str]:
        """(the text up to the parameters of a URI, these parameters)."""
        found = None if self.is_local else _PARAMETERS.search(self.text)
        return (self.text, "") if found is None else (self.text[: found.start()], found[0])

    @property
    def local_path(self) -> str:
        """The absolute local path; it has a meaning only if `is_local`.

        Raises:
            OptionError: it is relative, and the working directory of the job is not on this machine.
        """
        path = os.path.join(self.folder, os.path.expanduser(self.text.removeprefix("file://")))
        if _missing_start is not None and not os.path.isabs(path):
            raise OptionError(
                "path",
                f"path '{self.text}' is relative to the working directory of the job, {_missing_start}, which is not on this machine",
                hint="give an absolute path that all machines see, or make that directory on each of them",
            )
        return os.path.abspath(path)

    def open(self) -> tuple[pafs.FileSystem, str]:
        """(the file system, the path on it); for a glob the path of the folder before its first wildcard.

        Raises:
            OptionError: the URI's scheme is unknown or the URI is malformed.
            ConnectorError: the store has to be asked where it is, and does not answer.
        """
        text, parameters = self._parts
        if self.is_glob:
            text = text[: _first_wildcard(text)].rpartition("/")[0] or ("/" if text.startswith("/") else ".")
        if self.is_local:
            return pafs.LocalFileSystem(), TablePath(text, self.folder).local_path
        if self.store is not None and not self.store.parameters:
            return self.store.open(), text.partition("://")[2].rstrip("/")
        parameters = parameters if self.store is None else self.store.parameters
        try:
            filesystem, path = pafs.FileSystem.from_uri(with_time_limit(text + parameters))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OptionError("path", f"path '{self.text}' is no location that can be opened: {error}") from error
        except OSError as error:  # the region of a bucket is asked for
            hint = "check the name of the bucket and the network; `?region=…&endpoint_override=…` behind the path says where it is"
            raise ConnectorError(
                f"path '{self.text}' cannot be opened: {_reason(error)}", retryable=retryable_io(error, True), hint=hint
            ) from error
        return filesystem, path

    def holds(self, path: str) -> bool:
        """Whether a path on the file system is this file, or below this folder or the glob's folder. Only the texts are compared."""
        _, base = self.open()
        base = base.rstrip("/")
        return path == base or (
            path.startswith(f"{base}/") and not {"", ".", ".."} & set(path[len(base) + 1 :].split("/"))
        )

    def glob_pattern(self) -> re.Pattern[str]:
        """The pattern that a path on the file system must match as a whole: `*` and `?` match within one folder, `**` across folders."""
        _, base = self.open()
        rest = self.local_path if self.is_local else self._parts[0]
        head = rest[: _first_wildcard(rest)].rpartition("/")[0]
        return re.compile(re.escape(base.rstrip("/")) + _translate(rest[len(head) :]))


def file_place(text: str) -> TablePlace:
    """What a path of a user names: a local one is absolute, a URI has no parameters.

    >>> str(file_place("s3://lake/orders/?region=eu-central-1"))
    'files s3://lake/orders'
    """
    path = TablePath(_canonical(text))
    name = path.local_path if path.is_local else path._parts[0].rstrip("/")
    return TablePlace("files", name, PlaceMatching.PATH)


_missing_start: str | None = None


def relative_paths_start_nowhere(directory: str) -> None:
    """From now on local paths that are relative are errors in this process: the working directory that they start in is not here."""
    global _missing_start  # noqa: PLW0603 - as the working directory itself is
    _missing_start = directory


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
    """A regular expression for a set of characters, as `fnmatch` reads it: `[`, `&&` and `--` have no special meaning there."""
    whole = fnmatch.translate(f"[{'!' + inside[1:] if inside[0] == '^' else inside}]")
    return whole[: whole.rindex(")") + 1]  # without the end of the text that `fnmatch` adds


def _canonical(path: str) -> str:
    """A path as pyarrow knows it: without the names that Hadoop and Java have for the same.

    >>> _canonical("s3a://lake/in"), _canonical("file:/tmp/in"), _canonical("in/a.json")
    ('s3://lake/in', 'file:///tmp/in', 'in/a.json')
    """
    return _FILE_OF_JAVA.sub("file:///", re.sub("^s3a://", "s3://", path), count=1) if ":" in path else path


def _check_uri(path: str) -> None:
    """Whether a URI can be one of a store. Raises OptionError."""
    if not _SCHEME.match(path):
        return
    scheme, _, rest = path.partition("://")
    if scheme not in _SCHEMES:
        near = near_matches(scheme.lower(), _SCHEMES)
        meant = f"did you mean {near[0]}://? " if near else ""
        known = ", ".join(f"{each}://" for each in _SCHEMES)
        raise OptionError(
            "path",
            f"path '{path}' cannot be opened: '{scheme}://' is no kind of location",
            hint=f"{meant}a path is a local one, or begins with {known}",
        )
    if scheme in _WITH_BUCKET and (not rest or rest[0] in "/?"):
        raise OptionError("path", f"path '{path}' names no bucket", hint=f"{scheme}://BUCKET/…")


def location_of(path: str, options: Options | None = None) -> TablePath:
    """The location of a `path` option.

    Args:
        path: the option's value.
        options: of the table, which may say of a store where it is.

    Raises:
        OptionError: the text is empty, which would mean the working directory, has a NUL character, or is a URI of no store that is known;
            or options of a store do not fit.
    """
    if not path.strip():
        raise OptionError("path", "option 'path' is empty", hint="write . for the working directory")
    if "\0" in path:
        raise OptionError("path", "option 'path' has a NUL character, which no path can have", hint="take it out")
    _check_uri(path)
    path = _canonical(path)
    return TablePath(path, store=None if options is None else store_of(options, path))


def check_pattern(pattern: str | None) -> None:
    """Check `source.path.regex-pattern`.

    Raises:
        OptionError: the pattern is no regular expression.
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
    """A context in which a path that does not exist is no error but has no files, for pipelines that are only explained.

    Gives a list of the paths that did not exist, which grows meanwhile.
    """
    met: list[TablePath] = []
    token = _missing.set(met)
    try:
        yield met
    finally:
        _missing.reset(token)


def is_allowed_to_miss(location: TablePath) -> bool:
    """Whether it is no error that a location does not exist (see `allowing_missing`)."""
    met = _missing.get()
    if met is None:
        return False
    if location not in met:
        met.append(location)
    return True


def check_exists(location: TablePath, pattern: str | None = None) -> None:
    """Check that a local path can be read.

    Raises:
        OptionError: the path does not exist or may not be read; the message lists near matches in the same folder.
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
    if os.path.islink(path):
        return f"it is a link to {os.readlink(path)}, which does not lead to a file"
    hint = did_you_mean(name, sorted(os.listdir(folder)))
    return hint or "relative paths start at the working directory"


def list_files(location: TablePath, pattern: str | None, *, may_be_missing: bool = False) -> list[FoundFile]:
    """The files that a location means, sorted by path: itself, all below a folder, or those that match a glob.

    Files and folders whose name begins with `.` or `_` are hidden, and left out unless the location names them. It blocks on I/O.

    Args:
        location: a file, a folder or a glob.
        pattern: a regular expression that the full path must match; None: all paths do.
        may_be_missing: whether a location that does not exist is no error but has no files.

    Raises:
        ConnectorError: the location does not exist or cannot be listed.
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
            raise ConnectorError(f"path '{location.text}' does not exist ({base})", retryable=False, hint=hint)
        if location.is_local:
            entries = list(_walk(base, skip_unreadable_names=may_be_missing))
        else:
            selected = filesystem.get_file_info(pafs.FileSelector(base, recursive=True))
            entries = [FoundFile(f.path, f.size) for f in selected if f.type == pafs.FileType.File]
    except (OSError, pa.ArrowException) as error:  # the latter is how Azure's client refuses a login
        hint = None if location.is_local else "check where it is and its credentials: docs/storage.md"
        message = f"path '{location.text}' cannot be listed: {_reason(error)}"
        raise ConnectorError(message, retryable=retryable_io(error), hint=hint) from error
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
    """All files below a local folder. Links are followed, except those to a folder that they are in."""
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
                elif entry.is_file():  # it is false for a broken link too
                    yield FoundFile(f"{folder.rstrip('/')}/{entry.name}", entry.stat().st_size)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _name_cannot_be_read(folder: str, name: str, *, skip: bool) -> None:
    """Report a name that is no valid text: once in the log if `skip`, else as a ConnectorError."""
    shown = f"{folder}/{name.encode(errors='surrogateescape')!r}"
    message = f"the name of {shown} is not UTF-8: it cannot be read"
    if not skip:
        raise ConnectorError(message, hint="rename it, or hide it with . or _ in front")
    if shown not in _unreadable_names:
        _unreadable_names.add(shown)
        _log.warning("%s; it is left out until it is renamed", message)


_unreadable_names: set[str] = set()
"""The names that were reported already."""


def is_hidden(relative: str) -> bool:
    """Whether a part of a path begins with `.` or `_`. Folders `_column=value` are partitions and not hidden, as in Spark.

    >>> is_hidden("a/.b/c.json"), is_hidden("_SUCCESS"), is_hidden("_day=2024-03-01/a.json")
    (True, True, False)
    """
    return any(p.startswith(".") or (p.startswith("_") and "=" not in p) for p in relative.split("/"))


def compression_of(path: str) -> str | None:
    """The codec that the ending of a file name means; None: the file is not compressed.

    >>> compression_of("a/b.json.gz"), compression_of("b.json")
    ('gzip', None)
    """
    return _COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def open_error(path: str, error: OSError) -> ConnectorError:
    """The error for a file that cannot be opened or read."""
    return ConnectorError(f"{path} cannot be read: {_reason(error)}", retryable=retryable_io(error))


def _reason(error: OSError | pa.ArrowException) -> str:
    said = (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]
    return _GOOGLES.sub(r"\1", said)


def relative_parts(path: str, base: str) -> Sequence[str]:
    """The folder names between `base` and a file below it."""
    return [p for p in path.removeprefix(base).split("/")[:-1] if p]
