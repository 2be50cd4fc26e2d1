"""The reference page is generated from the specification and kept in the repository."""

from __future__ import annotations

from pathlib import Path

from flowrun.frontend.trees.spec import records
from flowrun.frontend.yaml.declaration.document import DOCUMENT
from flowrun.frontend.yaml.declaration.reference import reference_markdown

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "yaml.md"
UPDATE = (
    'python -c "from flowrun.frontend.yaml.declaration.reference import reference_markdown as r; print(r(), end=str())" '
    "> docs/reference/yaml.md"
)


def test_the_page_in_docs_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_markdown(), f"run: {UPDATE}"


def test_every_key_of_every_record_is_on_the_page() -> None:
    page = reference_markdown()
    for record in records(DOCUMENT):
        for key in record.keys:
            assert f"| `{key.name}` |" in page
            assert key.doc.replace("|", r"\|") in page


def test_links_lead_to_headings() -> None:
    page = reference_markdown()
    anchors = {
        line[3:].lower().replace(" ", "-").replace("'", "") for line in page.splitlines() if line.startswith("## ")
    }
    links = {part.split(")")[0] for part in page.split("](#")[1:]}
    assert links <= anchors
