"""The documentation as a site: every page has its place in it, links lead to headings, and pictures are what their script draws."""

from __future__ import annotations

import ast
import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = DOCS / "site"
OUTSIDE: dict[str, str] = ast.literal_eval(
    re.findall(r"^PAGES = (\{.*?^\})", (SITE / "hooks.py").read_text(encoding="utf-8"), re.M | re.S)[0]
)
"""Pages outside of docs/ → what they are called in the site."""
PAGES = [*(ROOT / source for source in OUTSIDE), *sorted(DOCS.rglob("*.md"))]
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)")


class _Loader(yaml.SafeLoader):
    """Reads MkDocs' file, in which one option names a function."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)  # type: ignore[no-untyped-call]


def navigation(entries: list[Any]) -> Iterator[str]:
    """The pages that a list of the site's navigation leads to."""
    for entry in entries:
        for value in [entry] if isinstance(entry, str) else entry.values():
            yield from [value] if isinstance(value, str) else navigation(value)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, by the rule of GitHub: lower case, letters, digits, `-` and `_` only, `-` for spaces."""
    seen: Counter[str] = Counter()
    found = set()
    for title in re.findall(r"^#+ (.+?)\s*$", _CODE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def test_every_page_has_one_place_in_the_navigation() -> None:
    settings = yaml.load((SITE / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)
    placed = Counter(navigation(settings["nav"]))
    pages = Counter([str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")] + list(OUTSIDE.values()))
    assert placed == pages, "docs/site/mkdocs.yml, nav: every page of docs/ once, and no other"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_headings(page: Path) -> None:
    for target, anchor in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        linked = (page.parent / target).resolve() if target else page
        if linked.suffix == ".md":
            assert anchor in anchors(linked), f"{page.name}: there is no heading #{anchor} in {linked.name}"


def test_pictures_are_what_their_script_draws() -> None:
    draw = runpy.run_path(str(DOCS / "concepts" / "draw.py"))
    pictures = {name: make().svg() for name, make in draw["PICTURES"].items()}
    assert {
        p.name: p.read_text(encoding="utf-8") for p in (DOCS / "concepts" / "pictures").glob("*.svg")
    } == pictures, "run: make docs"
    shown = "".join(p.read_text(encoding="utf-8") for p in (DOCS / "concepts").glob("*.md"))
    assert [name for name in pictures if f"(pictures/{name})" not in shown] == []


def test_figures_beside_other_systems_are_measured_ones() -> None:
    measured = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    said = re.findall(
        r"\b\d+(?:\.\d+)? (?:k/s|M rows/s|GB|ms|s)\b|\b\d+\.\d+ times|(?<=between )0\.\d+",
        (DOCS / "choosing.md").read_text(encoding="utf-8"),
    )
    assert len(said) > 10
    assert [figure for figure in said if figure.removesuffix(" times") not in measured] == []
