"""The registry: names lead to connectors, wrong names to near ones."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowrun.cli.main import cli
from flowrun.connectors import registry
from flowrun.connectors.registry import connector_named, connector_names
from flowrun.errors import OptionError, SetupError


def test_every_listed_connector_loads_under_its_own_name() -> None:
    for name in connector_names():
        connector = connector_named(name)
        assert connector.name == name
        assert connector.create_source or connector.create_sink
        assert connector.summary
        for option in (*connector.source_options, *connector.sink_options):
            assert option.doc.endswith("."), option.name


def test_an_unknown_name_brings_the_nearest_ones() -> None:
    with pytest.raises(OptionError, match="did you mean 'filesystem'"):
        connector_named("filesystm")


@pytest.fixture
def broken_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package whose connector `ledger` needs something that is not there."""
    info = tmp_path / "broken-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[flowrun.connectors]\nledger = broken_ledger:CONNECTOR\n")
    (tmp_path / "broken_ledger.py").write_text("raise ImportError('libledger.so is not there')\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry._targets.cache_clear()
    yield
    monkeypatch.undo()
    registry._targets.cache_clear()


@pytest.mark.usefixtures("broken_package")
def test_a_package_that_cannot_be_imported_is_named_and_hides_no_other_connector() -> None:
    with pytest.raises(SetupError, match=r"connector 'ledger' .* module broken_ledger .*: libledger.so is not there"):
        connector_named("ledger")
    listing = CliRunner().invoke(cli, ["connectors"])
    assert listing.exit_code == 0, listing.output
    assert "filesystem     exactly once   exactly once   yes     yes" in listing.output
    assert "broken     connector 'ledger' is of another package" in listing.output
    listed = {c["name"]: c for c in json.loads(CliRunner().invoke(cli, ["connectors", "--format", "json"]).output)}
    assert set(listed) == set(connector_names())
    assert "libledger.so" in listed["ledger"]["error"]
