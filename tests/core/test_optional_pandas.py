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

    def run(program: str, *arguments: object) -> bool:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)],
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


@pytest.mark.parametrize("command", ["run", "preview", "validate", "explain", "lint", "graph", "test"])
def test_commands_without_users_code_do_not_import_it(imported, tmp_path: Path, command: str) -> None:
    pipeline, tests = tmp_path / "p.yaml", tmp_path / "p.test.yaml"
    pipeline.write_text(
        "name: p\nsources: {s: {connector: datagen, number-of-rows: 1, schema: {k: BIGINT}}}\n"
        "steps: {t: {from: s, select: k + 1 AS k}}\nsinks: {o: {from: t, connector: blackhole}}\n"
    )
    tests.write_text("pipeline: p.yaml\ntests:\n- {name: a row, given: {s: [{k: 1}]}, expect: {o: [{k: 2}]}}\n")
    program = "import sys; from flowrun.cli.main import main; sys.argv = ['flowrun', *sys.argv[1:]]; main()"
    assert not imported(program, command, tests if command == "test" else pipeline)


@pytest.mark.parametrize("command", [("savepoint", "p"), ("stop", "p"), ("rescale", "p", "-p", "2"), ("state", "list")])
def test_commands_about_jobs_do_not_import_it(imported, tmp_path: Path, command: tuple[str, ...]) -> None:
    program = (
        "import sys, contextlib; from flowrun.cli.main import main; sys.argv = ['flowrun', *sys.argv[1:]]\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "import pyarrow as pa; assert pa.array([1])[0].as_py() == 1"
    )
    assert not imported(program, *command, *([tmp_path] if command[0] == "state" else []))
