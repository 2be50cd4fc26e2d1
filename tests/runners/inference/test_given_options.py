"""Options of tables that are proposed: what counts, and what is written of it."""

from __future__ import annotations

import pytest

from flowrun.errors import PipelineError
from flowrun.runners.inference.given_options import TableOptions, table_options
from flowrun.runners.inference.sample import Asked

SERVERS = {"topic": "t", "properties.bootstrap.servers": "a:1"}


def options(own: dict[str, str], connector: str = "kafka", form: str | None = None, **given: str) -> TableOptions:
    asked = Asked(
        "kafka://a:1/t", options={n.replace("__", "."): v for n, v in given.items()}, environment={"WORD": "pw"}
    )
    return table_options(asked, connector, form, own)


def test_secrets_are_variables() -> None:
    found = options(SERVERS, properties__sasl__password="word-of-mine", properties__client__id="x${WORD}")
    assert dict(found.written)["properties.sasl.password"] == "${KAFKA_PASSWORD}"
    assert dict(found.written)["properties.client.id"] == "x${WORD}"
    assert found.variables == ("KAFKA_PASSWORD",)
    assert found.values.get("properties.sasl.password") == "word-of-mine"
    assert found.values.get("properties.client.id") == "xpw"


def test_a_variable_of_the_user_stays() -> None:
    found = options(SERVERS, properties__sasl__password="${WORD}")
    assert dict(found.written)["properties.sasl.password"] == "${WORD}"
    assert (found.variables, found.values.get("properties.sasl.password")) == (("WORD",), "pw")


def test_passwords_in_uris_are_secrets() -> None:
    found = options({"path": "abfs://c@a.example/x?sas=0123456789"}, "filesystem", "json")
    assert found.written == (("path", "${TABLE_PATH}"),)
    assert options({"path": "a${b}"}, "filesystem", "json").written == (("path", "a$${b}"),)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topics": "t"}, "connector 'kafka' has no option 'topics'"),
        ({"scan__startup__mode": "soon"}, "'scan.startup.mode' must be one of"),
        ({"properties__client__id": "${NONE}"}, "the variable 'NONE' is not set"),
    ],
)
def test_what_is_wrong(given: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError) as raised:
        options(SERVERS, **given)
    assert said in str(raised.value)
