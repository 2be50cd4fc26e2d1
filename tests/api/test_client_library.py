"""Client libraries: found without being imported, and missed in words that say how to get them."""

from __future__ import annotations

import sys
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
