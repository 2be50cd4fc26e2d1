"""Client libraries: found without being imported, and missed in words that say how to get them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from flowrun.api.client_library import ClientLibrary
from flowrun.errors import SetupError


def test_what_is_there_is_imported_when_it_is_used() -> None:
    library = ClientLibrary("table", ("wave",))
    sys.modules.pop("wave", None)
    assert library.is_installed
    assert "wave" not in sys.modules
    assert library.module("wave", "connector 'sound'").__name__ == "wave"


def test_what_is_missing_is_told_with_the_command_that_installs_it() -> None:
    library = ClientLibrary("kafka", ("no_such_client_library",))
    assert not library.is_installed
    with pytest.raises(SetupError, match=r"connector 'kafka' needs .* no_such_client_library, which is not") as caught:
        library.module("no_such_client_library", "connector 'kafka'")
    assert caught.value.hint == "pip install 'flowrun-streaming[kafka]'"


def test_what_is_there_but_broken_is_told_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import a_shared_library_that_is_missing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    library = ClientLibrary("", ("half_installed",), install="apt install it")
    with pytest.raises(SetupError, match="a_shared_library_that_is_missing") as caught:
        library.module("half_installed", "format 'odd'")
    assert caught.value.hint == "apt install it"


def test_threads_import_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that import each other, as those of deltalake do, are found half made by a thread that comes in between."""
    package = tmp_path / "a_slow_client"
    package.mkdir()
    (package / "__init__.py").touch()
    gate = (
        "import threading\ninside = 0\nboth = threading.Event()\n\ndef enter():\n    global inside\n    inside += 1\n"
    )
    gate += "    if inside == 2:\n        both.set()\n    both.wait(0.05)\n    inside -= 1\n"
    (package / "gate.py").write_text(gate)
    for name in ("one", "two"):
        (package / f"{name}.py").write_text("from a_slow_client import gate\ngate.enter()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    library = ClientLibrary("slow", ("a_slow_client",))
    names = [f"a_slow_client.{n}" for n in ("one", "two")]
    threads = [threading.Thread(target=library.module, args=(name, "connector 'slow'")) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not library.module("a_slow_client.gate", "connector 'slow'").both.is_set()


def test_of_several_packages_the_one_that_is_missing_is_named() -> None:
    library = ClientLibrary("iceberg", ("json", "no_such_client_library", "wave"))
    assert library.missing_module == "no_such_client_library"
    assert ClientLibrary("table", ("json",)).missing_module == ""
