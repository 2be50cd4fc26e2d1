"""Databases of this folder's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.jdbc.files import SCHEMES, FileDatabase, made


@pytest.fixture(params=SCHEMES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> FileDatabase:
    """A file of each kind, without tables."""
    return made(request.param, tmp_path)


@pytest.fixture
def duckdb_file(tmp_path: Path) -> FileDatabase:
    """A file of DuckDB, without tables."""
    return made("duckdb", tmp_path)


@pytest.fixture
def sqlite_file(tmp_path: Path) -> FileDatabase:
    """A file of SQLite, without tables."""
    return made("sqlite", tmp_path)
