"""The generated pages in docs/reference/ are up to date, and links between pages lead somewhere."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from flowrun.connectors import reference as connectors
from flowrun.frontend.project import reference as project
from flowrun.frontend.sql import reference as sql
from flowrun.functions import reference as functions
from flowrun.plan.rewrites import RULES
from flowrun.plan.rewrites import reference as optimiser
from flowrun.rest import metric_names
from flowrun.runners.lint import reference as lint

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "samples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("functions.md", functions.reference_markdown),
        ("connectors.md", connectors.reference_markdown),
        ("sql.md", sql.reference_markdown),
        ("optimiser.md", optimiser.reference_markdown),
        ("metrics.md", metric_names.reference_markdown),
        ("lint.md", lint.reference_markdown),
        ("project.md", project.reference_markdown),
    ],
)
def test_generated_pages_are_up_to_date(name: str, make: Callable[[], str]) -> None:
    page = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert page == make(), "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_rewrite_is_in_the_architecture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [rule.__name__ for rule in RULES if f"| `{rule.__name__}` |" not in page] == []


def test_the_readme_says_what_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for marker in re.findall(r"<!-- ci: (\w+) -->", readme):
        assert f'run_readme "{marker}"' in script
