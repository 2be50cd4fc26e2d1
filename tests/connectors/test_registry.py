"""The registry: names lead to connectors, wrong names to near ones."""

import pytest

from flowrun.connectors.registry import connector_named, connector_names
from flowrun.errors import OptionError


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
