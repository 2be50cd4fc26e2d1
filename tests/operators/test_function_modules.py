"""Modules of functions that share a name but not a folder."""

import os
import sys
from pathlib import Path

import pytest

from flowrun.operators.function_loading import forget_changed_modules, load_function


def test_a_folder_and_one_inside_it_may_each_have_a_module_of_one_name(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "shared_name.py").write_text("def f(x):\n    return 'outer'\n")
    (inner / "shared_name.py").write_text("def f(x):\n    return 'inner'\n")
    for folder, expected in [(tmp_path, "outer"), (inner, "inner"), (tmp_path, "outer")]:
        assert load_function("shared_name:f", [str(folder)])(None) == expected


def test_a_module_that_is_corrected_within_a_second_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "corrected_soon.py"
    for tenths, digit in enumerate("123"):
        file.write_text(f"def f(x):\n    return {digit}\n")
        os.utime(file, ns=(0, 1_700_000_000_000_000_000 + tenths * 100_000_000))
        forget_changed_modules()
        assert load_function("corrected_soon:f", [str(tmp_path)])(None) == int(digit)
    assert sys.dont_write_bytecode is False
