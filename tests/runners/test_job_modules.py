"""Which modules travel with a job: what it imports or may import from beside the pipeline, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.operators.function_loading import load_function
from flowrun.runners.job_modules import modules_of_job
from flowrun.runtime.cluster import job_files
from flowrun.state.checkpoints import PipelineText


@pytest.fixture(autouse=True)
def _imports_are_forgotten() -> object:
    before = set(sys.modules)
    yield None
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        place = folder / name.replace("__of__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_suffix(".py").write_text(text)


def sent(folder: Path, file: str = "p.yaml") -> list[str]:
    text = PipelineText(str(folder / file), "", str(folder), {}, {}, str(folder), ())
    return [f.path for f in modules_of_job(text).files]


def test_what_is_imported_and_what_may_be_imported_later(tmp_path: Path) -> None:
    write(
        tmp_path,
        jm_fns="import json, jm_direct\nfrom jm_pack.inner import f as g\ndef f(row):\n    import jm_late\n    return row\n",
        jm_direct="",
        jm_late="import importlib\ndef more():\n    importlib.import_module('jm_by_name')\n",
        jm_by_name="import jm_direct\n",
        jm_pack__of____init__="",
        jm_pack__of__inner="def f(row): return row\n",
        jm_pack__of__deep__of__plugin="import jm_of_plugin\n",
        jm_of_plugin="",
        jm_unrelated="raise SystemExit\n",
        json="raise SystemExit\n",
        flowrun="raise SystemExit\n",
    )
    (tmp_path / "jm_pack" / "data.csv").write_text("1\n")
    load_function("jm_fns:f", [str(tmp_path)])
    assert sent(tmp_path) == [
        "jm_by_name.py",
        "jm_direct.py",
        "jm_fns.py",
        "jm_late.py",
        "jm_of_plugin.py",
        "jm_pack/__init__.py",
        "jm_pack/deep/plugin.py",
        "jm_pack/inner.py",
    ]


def test_a_pipeline_without_functions_sends_nothing(tmp_path: Path) -> None:
    write(tmp_path, jm_fns="")
    assert sent(tmp_path) == []


def test_functions_of_a_kept_text_travel_from_the_folder_that_they_were_imported_from(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", jm_moved="import jm_helper\ndef f(row): return row\n", jm_helper="")
    load_function("jm_moved:f", [str(tmp_path / "elsewhere")])
    text = PipelineText(str(tmp_path / "p.yaml"), "", str(tmp_path), {}, {}, str(tmp_path), ())
    assert [f.path for f in modules_of_job(text, tmp_path / "elsewhere").files] == ["jm_helper.py", "jm_moved.py"]


def test_a_program_travels_with_what_it_names(tmp_path: Path) -> None:
    write(tmp_path, job="def f():\n    import jm_late\n", jm_late="", jm_other="")
    assert sent(tmp_path, "job.py") == ["jm_late.py", "job.py"]


def test_a_link_that_leads_out_is_an_error_and_one_within_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "pipeline"
    write(folder, jm_fns="def f(row):\n    import jm_linked\n    return row\n", jm_real="")
    (folder / "jm_linked.py").symlink_to("jm_real.py")
    load_function("jm_fns:f", [str(folder)])
    assert sent(folder) == ["jm_fns.py", "jm_linked.py"]
    write(tmp_path, secrets="KEY = 1\n")
    (folder / "jm_linked.py").unlink()
    (folder / "jm_linked.py").symlink_to("../secrets.py")
    with pytest.raises(PipelineError, match=r"jm_linked\.py does not travel .*: it is a link that leads out of"):
        sent(folder)


def test_a_linked_folder_in_a_package_is_left_out_unless_it_was_imported(tmp_path: Path) -> None:
    folder = tmp_path / "pipeline"
    write(tmp_path, shared__of__names="def f(row): return row\n")
    write(folder, jm_pack__of____init__="", jm_pack__of__own="def f(row): return row\n")
    (folder / "jm_pack" / "shared").symlink_to(tmp_path / "shared", target_is_directory=True)
    load_function("jm_pack.own:f", [str(folder)])
    assert sent(folder) == ["jm_pack/__init__.py", "jm_pack/own.py"]
    load_function("jm_pack.shared.names:f", [str(folder)])
    with pytest.raises(PipelineError, match=r"'jm_pack\.shared\.names' does not travel to other machines"):
        sent(folder)


def test_compiled_modules_do_not_travel(tmp_path: Path) -> None:
    write(tmp_path, jm_fns="def f(row):\n    import jm_fast\n    return row\n")
    (tmp_path / "jm_fast.so").write_bytes(b"\x7fELF")
    load_function("jm_fns:f", [str(tmp_path)])
    with pytest.raises(
        PipelineError, match=r"'jm_fast' .* does not travel to other machines: .*jm_fast\.so is compiled"
    ):
        sent(tmp_path)


@pytest.mark.parametrize(("limit", "message"), [("MOST_FILES", "3 files of"), ("MOST_BYTES", "too much to travel")])
def test_bounds(tmp_path: Path, limit: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, jm_fns="import jm_a, jm_b\ndef f(row): return row\n", jm_a="", jm_b="")
    load_function("jm_fns:f", [str(tmp_path)])
    monkeypatch.setattr(job_files, limit, 2)
    with pytest.raises(PipelineError, match=message) as raised:
        sent(tmp_path)
    assert "install them as a package" in raised.value.message
