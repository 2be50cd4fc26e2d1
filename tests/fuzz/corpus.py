"""Right texts to start from: the scripts and pipelines of this repository, of its documentation and of its tests."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FOLDERS = ("docs", "flowrun", "pipelines", "tests")
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
_STATEMENT = re.compile(r"\s*(CREATE|SELECT|INSERT|WITH|EXECUTE|SET|DESCRIBE|EXPLAIN|SHOW|DROP|ALTER)\b", re.IGNORECASE)
_QUERY = re.compile(r"(INSERT INTO \S+|SELECT|WITH)\s", re.IGNORECASE)
_INSERT = re.compile(r"^INSERT INTO \S+\s*(\([^)]*\)\s*)?(?=SELECT|WITH)", re.IGNORECASE)
_LONGEST = 6_000

HERE = Path(__file__).parent
TABLES = (HERE / "tables.sql").read_text(encoding="utf-8")
"""Tables with every type, put before queries that stand alone."""

_QUERIES = [line.removesuffix(";") for line in (HERE / "queries.sql").read_text(encoding="utf-8").splitlines()[1:]]

TYPES = (
    "DECIMAL(38, 10)",
    "ROW<a INT NOT NULL 'comment', `b c` ARRAY<MAP<STRING, MULTISET<TIMESTAMP(3) WITH LOCAL TIME ZONE>>>>",
    "ROW(a INTERVAL DAY(2) TO SECOND(3), b INTERVAL YEAR TO MONTH, c VARCHAR(2147483647), d INT ARRAY)",
    "MAP<CHAR(3), BINARY VARYING(4)>",
    "TIMESTAMP_LTZ(9) NOT NULL",
    "DOUBLE PRECISION",
    "TIME(3) WITHOUT TIME ZONE",
)


def few(name: str) -> tuple[str, ...]:
    """A few right texts for a target, which do not change when other tests do."""
    items = tuple(
        item.strip() for q in _QUERIES for item in q.removeprefix("SELECT ").partition(" FROM ")[0].split(", ")
    )
    return {
        "script": (TABLES,),
        "query": tuple(_QUERIES),
        "batch": tuple(_QUERIES),
        "spark": tuple(_QUERIES),
        "pipeline": tuple(p.read_text(encoding="utf-8") for p in sorted((ROOT / "pipelines").glob("*.yaml"))),
        "expression": items,
        "type": TYPES,
    }[name]


@cache
def scripts() -> tuple[str, ...]:
    """SQL scripts and single queries."""
    found = {*_files("sql"), *_blocks("sql"), *(f"{TABLES}{q};" for q in _QUERIES)}
    found |= {
        text if "create" in text.lower() else TABLES + text
        for text in _strings("tests/frontend", "tests/sql")
        if _STATEMENT.match(text)
    }
    return tuple(sorted(found))


@cache
def queries() -> tuple[str, ...]:
    """Single queries, without a semicolon; most of them over the columns of `TABLES`."""
    found = set(_QUERIES)
    for script in scripts():
        statements = (s.strip() for s in script.removeprefix(TABLES).split(";"))
        found |= {_INSERT.sub("", s) for s in statements if _QUERY.match(s)}
    return tuple(sorted(found))


@cache
def pipelines() -> tuple[str, ...]:
    """Pipelines in YAML."""
    found = {*_files("yaml"), *_files("yml"), *_blocks("yaml")}
    found |= {t for t in _strings("tests/frontend/yaml", "tests/cli", "tests/end_to_end") if "sources:" in t}
    return tuple(sorted(found))


@cache
def expressions() -> tuple[str, ...]:
    """Single expressions, over the columns that `targets.py` knows and over others."""
    found = set(_strings("tests/functions", "tests/frontend/sql"))
    found |= set(few("expression"))
    return tuple(sorted(t for t in found if 1 < len(t) < 200 and not _STATEMENT.match(t)))


def _files(suffix: str) -> list[str]:
    paths = [p for folder in _FOLDERS for p in (ROOT / folder).rglob(f"*.{suffix}")]
    return [text for text in (p.read_text(encoding="utf-8") for p in paths) if len(text) < _LONGEST]


def _blocks(language: str) -> list[str]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return [
        text for page in pages for kind, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language
    ]


def _strings(*folders: str) -> list[str]:
    """Every string that stands in the code of some tests."""
    paths = [p for folder in folders for p in (ROOT / folder).rglob("*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    values = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [value for value in values if len(value) < _LONGEST]
