"""The files of the page that browsers show. They are known by name: no path of a request leads to the disk."""

from __future__ import annotations

from pathlib import Path

from flowrun.core.record import record

_FOLDER = Path(__file__).parent / "page"
_INDEX = "index.html"
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


@record
class PageFile:
    """One file.

    Attributes:
        path: under which it is asked for: `/` or `/graph/layout.js`.
        media_type: of its content.
        content: its bytes.
    """

    path: str
    media_type: str
    content: bytes


def page_files(folder: Path = _FOLDER) -> tuple[PageFile, ...]:
    """All files of the page, read into memory; those of other kinds are left out."""
    return tuple(
        PageFile(_path(file.relative_to(folder).as_posix()), _MEDIA_TYPES[file.suffix], file.read_bytes())
        for file in sorted(folder.rglob("*"))
        if file.suffix in _MEDIA_TYPES
    )


def _path(name: str) -> str:
    return "/" if name == _INDEX else f"/{name}"
