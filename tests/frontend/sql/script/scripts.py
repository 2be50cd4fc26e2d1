"""Loading scripts in tests: a plan, or the problems as users see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.frontend.pipeline import LoadedPipeline, load_text
from flowrun.frontend.source_text import SourceText
from flowrun.plan.nodes import Plan, Scan, walk_plan

GENERATED = "WITH ('connector' = 'datagen', 'number-of-rows' = '3')"
ORDERS = f"CREATE TABLE orders (id BIGINT, buyer STRING, price DECIMAL(10, 2), ts TIMESTAMP(3)) {GENERATED};\n"
PRINTED = "CREATE TABLE out (id BIGINT, buyer STRING) WITH ('connector' = 'print');\n"


def load(
    text: str,
    folder: Path = Path(),
    overrides: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    **variables: str,
) -> LoadedPipeline:
    """A script that must be right."""
    return load_text(SourceText("s.sql", text), folder, variables, overrides or {}, environment or {})


def plan_of(text: str, folder: Path = Path(), **variables: str) -> Plan:
    """The plan of a script."""
    return load(text, folder, None, None, **variables).plan


def problems(text: str, folder: Path = Path(), overrides: dict[str, str] | None = None, **variables: str) -> str:
    """What a wrong script is answered with."""
    with pytest.raises(PipelineError) as caught:
        load(text, folder, overrides, None, **variables)
    return str(caught.value)


def lines(text: str, folder: Path = Path(), **variables: str) -> list[str]:
    """The first lines of the problems: place and message."""
    return [line for line in problems(text, folder, None, **variables).splitlines() if "error: " in line]


def scan_of(text: str, folder: Path = Path()) -> Scan:
    """The only scan of a script's plan."""
    (scan,) = (n for n in walk_plan(plan_of(text, folder)) if isinstance(n, Scan))
    return scan
