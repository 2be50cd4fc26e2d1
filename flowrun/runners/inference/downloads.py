"""Samples of files that a web server has: `https://…`. They are downloaded, because no connector reads them where they are."""

from __future__ import annotations

import base64
import http.client
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from flowrun.errors import ConnectorError, PipelineError
from flowrun.masking import learn_secret, learn_secrets_of_uri
from flowrun.runners.inference.files import sample_files
from flowrun.runners.inference.sample import Asked, Sample

SCHEMES = ("http", "https")
MOST_BYTES = 100 << 20
"""A larger file is not downloaded."""
MOST_SECONDS = 60.0
_SILENCE_S = 20.0
_PIECE = 1 << 16
_OF_TYPES = {
    "application/json": ".json",
    "application/x-ndjson": ".json",
    "application/jsonl": ".json",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/vnd.apache.parquet": ".parquet",
}
"""Content type → how names of such files end."""
_BY_HAND = "download it with a tool of your own, and give the path of the file"


def sample_url(asked: Asked, *, most_bytes: int = MOST_BYTES, most_seconds: float = MOST_SECONDS) -> Sample:
    """A sample of a file, which is downloaded: into the folder that is asked for, or for as long as it is looked at.

    Args:
        asked: about `https://…` of a file; a user and password in it are sent, and written nowhere.
        most_bytes: a larger file is an error.
        most_seconds: a download that takes longer is an error.

    Raises:
        ConnectorError: the server cannot be reached or refuses, or the download takes too long.
        PipelineError: the URL is none, it is that of no data or of too much, or the file would replace another one.
    """
    parts = urlsplit(asked.place)
    if not parts.hostname:
        raise PipelineError.of(f"'{parts.scheme}://…' names no server", "https://HOST/PATH")
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    folder = asked.download_to
    with _folder(folder) as kept_in:
        file = _downloaded(asked.place, shown, kept_in, most_bytes, most_seconds)
        try:
            found = sample_files(replace(asked, place=str(file), start=Path()))
        except BaseException:
            file.unlink()
            raise
    path = str(file) if folder is not None else file.name
    options = tuple((n, asked.written_path(path) if n == "path" else v) for n, v in found.options)
    said = (
        f"Downloaded from {shown}: the pipeline reads the copy."
        if folder is not None
        else f"Download it first, as no connector reads it from there: curl -fL -o {file.name} {shown}"
    )
    return replace(found, place=shown, options=options, remarks=(said, *found.remarks))


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    """The folder to download to; one that is gone afterwards, if none is to be kept."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    folder = Path(tempfile.mkdtemp(prefix="flowrun-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _downloaded(url: str, shown: str, folder: Path, most_bytes: int, most_seconds: float) -> Path:
    deadline = time.monotonic() + most_seconds
    try:
        with _opened(url) as answer:
            name = _file_name(shown, answer.headers)
            size = answer.headers.get("Content-Length", "")
            if size.isdigit() and int(size) > most_bytes:
                raise _too_large(shown, most_bytes)
            file = folder / name
            if file.exists():
                raise PipelineError.of(
                    f"'{file}' exists; nothing was written", "move it away, or give its path instead of the URL"
                )
            copied = _copy(answer, file, shown, most_bytes, deadline, most_seconds)
            if size.isdigit() and copied < int(size):
                file.unlink()
                raise http.client.HTTPException(f"the connection ended after {copied:,} of {int(size):,} bytes")
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(shown, error) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise ConnectorError(
            f"{shown} cannot be downloaded: {reason}",
            retryable=True,
            hint="check the URL, and that the server can be reached from here",
        ) from None
    return file


def _opened(url: str) -> Any:
    """The answer of the server. Passwords are for it alone: where it sends us they are not shown."""
    learn_secrets_of_uri(url)
    parts = urlsplit(url)
    try:
        address = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        request = urllib.request.Request(address, headers={"User-Agent": "flowrun", "Accept-Encoding": "identity"})
        if parts.username is not None:
            learn_secret(unquote(parts.password or ""))
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler(), urllib.request.HTTPSHandler(), urllib.request.HTTPRedirectHandler(),
            urllib.request.HTTPErrorProcessor(), urllib.request.HTTPDefaultErrorHandler(), urllib.request.UnknownHandler(),
            urllib.request.ProxyHandler(),
        ):  # fmt: skip
            opener.add_handler(handler)
        return opener.open(request, timeout=_SILENCE_S)
    except (ValueError, http.client.InvalidURL) as error:
        raise PipelineError.of(
            f"the URL cannot be used: {error}", "quote what is no letter or digit: a blank is %20"
        ) from None


def _copy(answer: Any, file: Path, shown: str, most_bytes: int, deadline: float, most_seconds: float) -> int:
    """Write what comes to a new file; gives its size."""
    size = 0
    try:
        with file.open("xb") as out:
            while piece := answer.read1(_PIECE):
                out.write(piece)
                size += len(piece)
                if size > most_bytes:
                    raise _too_large(shown, most_bytes)
                if time.monotonic() > deadline:
                    raise ConnectorError(
                        f"{shown} was not downloaded within {most_seconds:g} s: {size:,} bytes have come",
                        retryable=True,
                        hint=_BY_HAND,
                    )
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return size


def _too_large(shown: str, most_bytes: int) -> PipelineError:
    return PipelineError.of(f"{shown} has more than {most_bytes >> 20} MB", _BY_HAND)


def _refused(shown: str, error: urllib.error.HTTPError) -> ConnectorError:
    hint = {
        401: "give user and password in the URL: https://USER:PASSWORD@HOST/PATH; they are not written down",
        403: "check what the login may read",
        404: "check the URL",
    }.get(error.code)
    return ConnectorError(
        f"{shown} cannot be downloaded: HTTP {error.code} {error.reason}", retryable=error.code >= 500, hint=hint
    )


def _file_name(shown: str, headers: Mapping[str, str]) -> str:
    """A name for the file, from its URL, with the ending that its content type means if it has none."""
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "text/html":
        raise PipelineError.of(
            f"{shown} is a web page, no data", "give the URL of the file itself, often behind 'raw' or 'download'"
        )
    name = unquote(PurePosixPath(urlsplit(shown).path).name).replace("/", "_").lstrip("._") or "data"
    return name if PurePosixPath(name).suffix else name + _OF_TYPES.get(kind, "")
