"""pyarrow imports pandas only where it may be needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONVERSION = "import pyarrow as pa; pa.array([1, None]); pa.scalar(2)"


@pytest.fixture
def imported(tmp_path: Path):
    """Whether a program imports pandas, which here is a module that only says so."""
    (tmp_path / "pandas.py").write_text("print('pandas is imported')\n__version__ = '0.1'\n")

    def run(program: str) -> bool:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
            capture_output=True,
            text=True,
            check=True,
        )
        return "pandas is imported" in done.stdout

    return run


def test_conversions_do_not_import_pandas_when_it_is_forgone(imported) -> None:
    assert not imported(f"from flowrun.core.optional_pandas import forgo_pandas; forgo_pandas(); {CONVERSION}")


def test_pandas_can_be_imported_once_it_is_allowed_again(imported) -> None:
    program = "from flowrun.core.optional_pandas import allow_pandas, forgo_pandas; forgo_pandas(); "
    assert imported(f"{program} {CONVERSION}; allow_pandas(); allow_pandas(); import pandas")


def test_what_is_imported_already_stays(imported) -> None:
    assert imported(
        "import pandas; from flowrun.core.optional_pandas import forgo_pandas; forgo_pandas(); import pandas"
    )
