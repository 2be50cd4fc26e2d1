"""Writes the generated pages of docs/reference/. Run by `make docs`."""

from pathlib import Path

from flowrun.connectors import reference as connectors
from flowrun.frontend.project import reference as project
from flowrun.frontend.sql import reference as sql
from flowrun.frontend.yaml.declaration import reference as yaml
from flowrun.functions import reference as functions
from flowrun.plan.rewrites import reference as optimiser
from flowrun.rest import metric_names
from flowrun.runners.lint import reference as lint

PAGES = {
    "yaml.md": yaml.reference_markdown,
    "functions.md": functions.reference_markdown,
    "connectors.md": connectors.reference_markdown,
    "optimiser.md": optimiser.reference_markdown,
    "sql.md": sql.reference_markdown,
    "metrics.md": metric_names.reference_markdown,
    "lint.md": lint.reference_markdown,
    "project.md": project.reference_markdown,
}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (Path(__file__).parent / "reference" / name).write_text(make(), encoding="utf-8")
