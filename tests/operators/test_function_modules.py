"""Modules of functions that share a name but not a folder."""

from pathlib import Path

from flowrun.operators.function_loading import load_function


def test_a_folder_and_one_inside_it_may_each_have_a_module_of_one_name(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "shared_name.py").write_text("def f(x):\n    return 'outer'\n")
    (inner / "shared_name.py").write_text("def f(x):\n    return 'inner'\n")
    for folder, expected in [(tmp_path, "outer"), (inner, "inner"), (tmp_path, "outer")]:
        assert load_function("shared_name:f", [str(folder)])(None) == expected
