"""What the site needs beyond MkDocs: what stands outside of docs/ in the repository, and proof that pages load nothing from elsewhere."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "pipelines/nexmark/README.md": "nexmark.md",
}
"""Pages outside of docs/ → what they are called in the site."""
SOURCES = {name: source for source, name in PAGES.items()}
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"(`+)[^`].*?\1")
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\ssrc=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?![^>]*rel=[\"']?(?:canonical|next|prev))[^>]*?\shref=[\"']?((?:https?:)?//[^\"'\s>]+)"
)
_LOADED_BY_STYLES = re.compile(r"(?:@import\s+(?:url\()?|url\()[\"']?((?:https?:)?//[^\"')\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside of docs/, and each file there that a page links to, below `files/`."""
    for source, name in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    wanted: set[str] = set()
    for page in files.documentation_pages():
        for target, _ in _LINK.findall(page.content_string):
            place = _place(page.src_uri, target)
            if _is_copied(place):
                wanted |= {str(p.relative_to(ROOT)) for p in _files_of(ROOT / place)}
    for place in sorted(wanted):
        files.append(File.generated(config, f"files/{place}", abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to where those pages and files are in the site; of a folder to the first of its files, as sites show no folders.

    Code in tables has `\\|` for GitHub, where MkDocs would show the backslash.
    """
    here = posixpath.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        place = _place(page.file.src_uri, match[1])
        if place in PAGES:
            target = PAGES[place]
        elif _is_copied(place):
            target = "files/" + str(_files_of(ROOT / place)[0].relative_to(ROOT))
        elif (ROOT / place).is_dir():
            target = str(_files_of(ROOT / place)[0].relative_to(ROOT / "docs"))
        elif page.file.src_uri in SOURCES:
            target = posixpath.relpath(place, "docs")
        else:
            return match[0]
        return f"]({posixpath.relpath(target, here)}{match[2] or ''})"

    return _ROW.sub(lambda row: _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0]), _LINK.sub(moved, markdown))


def on_post_build(config: Any) -> None:
    """Refuse pages and styles that load something from the network."""
    site = Path(config.site_dir)
    found = [
        f"{path.relative_to(site)}: {''.join(address)}"
        for kind, pattern in (("html", _LOADED), ("css", _LOADED_BY_STYLES), ("svg", _LOADED_BY_STYLES))
        for path in sorted(site.rglob(f"*.{kind}"))
        for address in pattern.findall(path.read_text(encoding="utf-8"))
    ]
    if found:
        raise PluginError("these are loaded from the network; ship them with the site:\n" + "\n".join(found))


def _place(page: str, target: str) -> str:
    """Where in the repository a link of a page of the site leads."""
    source = SOURCES.get(page, f"docs/{page}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def _is_copied(place: str) -> bool:
    return not place.startswith(("docs/", "..")) and place not in PAGES and (ROOT / place).exists()


def _files_of(path: Path) -> list[Path]:
    """A file itself, or what is in a folder."""
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
