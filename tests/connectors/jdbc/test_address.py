"""JDBC URLs as people have them in their scripts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flowrun.connectors.jdbc.address import parse_address
from flowrun.connectors.jdbc.dialects import dialect_of
from flowrun.connectors.jdbc.postgres.connecting import conninfo
from flowrun.connectors.jdbc.relation import Access
from flowrun.errors import OptionError, SetupError


@pytest.mark.parametrize(
    ("url", "database", "parameters"),
    [
        ("jdbc:postgresql:shop", "shop", {}),
        ("jdbc:postgresql:/", "/", {}),
        ("jdbc:postgresql://db/shop", "shop", {"host": "db"}),
        ("jdbc:postgresql://db:5433/my%20shop", "my shop", {"host": "db", "port": "5433"}),
        ("jdbc:postgresql://[::1]:5433/shop", "shop", {"host": "::1", "port": "5433"}),
        ("jdbc:postgresql://a:1,b:2/shop", "shop", {"host": "a,b", "port": "1,2"}),
        (
            "jdbc:postgresql://a/s?ssl=true&sslrootcert=%2Fca.pem",
            "s",
            {"host": "a", "sslrootcert": "/ca.pem", "sslmode": "verify-full"},
        ),
        ("jdbc:postgresql://a/s?targetServerType=secondary", "s", {"host": "a", "target_session_attrs": "standby"}),
        ("jdbc:postgresql://a/s?reWriteBatchedInserts=true", "s", {"host": "a"}),
        (
            "jdbc:postgresql://a/s?targetServerType=preferSecondary",
            "s",
            {"host": "a", "target_session_attrs": "prefer-standby"},
        ),
        ("jdbc:postgresql://a/s?ssl=false&sslmode=verify-ca", "s", {"host": "a", "sslmode": "verify-ca"}),
        ("jdbc:postgresql://a/s?ssl", "s", {"host": "a", "sslmode": "verify-full"}),
    ],
)
def test_what_a_url_says(url: str, database: str, parameters: dict[str, str]) -> None:
    address = parse_address(url)
    assert (address.database, dict(address.parameters)) == (database, parameters)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://db/shop", "expects jdbc:postgresql"),
        ("jdbc:oracle:thin:@db", "got jdbc:oracle"),
        ("jdbc:postgresql://db:port/shop", "'port' is no port"),
        ("jdbc:postgresql://db/shop?sslmod=require", r"(?s)no parameter 'sslmod'.*'sslmode'"),
        ("jdbc:postgresql://db/shop?socketTimeout=soon", "expects seconds"),
        ("jdbc:postgresql://db/shop?socketTimeout=nan", "expects seconds"),
        ("jdbc:postgresql://db/shop?socketTimeout=inf", "expects seconds"),
        ("jdbc:postgresql://db/shop?socketTimeout=-1", "expects seconds"),
        ("jdbc:postgresql://db/shop?connectTimeout=soon", "'connectTimeout' expects seconds"),
        ("jdbc:postgresql://db/shop?connectTimeout=-5", "'connectTimeout' expects seconds"),
        ("jdbc:postgresql://db:65536/shop", "'65536' is no port"),
        ("jdbc:postgresql://db:0/shop", "'0' is no port"),
        ("jdbc:postgresql://db:²/shop", "'²' is no port"),
        ("jdbc:postgresql://db/shop?sslmode=verify_full", r"(?s)'sslmode' .* 'verify_full'.*'verify-full'"),
        ("jdbc:postgresql://db/shop?sslmode", "'sslmode' .* ''"),
        ("jdbc:postgresql://db/shop?ssl=yes", "(?s)'ssl' .* 'yes'.*known: false, true"),
        ("jdbc:postgresql://db/shop?gssEncMode=x", "'gssEncMode' .* 'x'"),
        ("jdbc:postgresql://db/shop?channelBinding=x", "'channelBinding' .* 'x'"),
        ("jdbc:postgresql://db/shop?targetServerType=preferPrimary", "'targetServerType' .* 'preferPrimary'"),
        ("jdbc:postgresql://db/shop?sslmode=verify-full&sslmode=disable", "'sslmode' is given twice"),
    ],
)  # fmt: skip
def test_urls_that_say_nothing_known(url: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        parse_address(url)
    assert raised.value.option == "url"


@pytest.mark.parametrize("who", ["me:hunter2@", "me:hun@ter2@", "me:hun/ter2@", "me:hun?ter2@", "me@"])
@pytest.mark.parametrize("port", ["", ":5432"])
def test_a_password_before_the_host_is_refused_without_a_word_of_it(who: str, port: str) -> None:
    with pytest.raises(OptionError, match="has a user before its host") as raised:
        parse_address(f"jdbc:postgresql://{who}db{port}/shop")
    assert "hun" not in str(raised.value)
    assert "'username' and 'password'" in (raised.value.hint or "")


def test_who_asks_is_told_to_the_library_and_shown_nowhere() -> None:
    address = parse_address("jdbc:postgresql://db/shop?user=u&password=p%27w&socketTimeout=7&currentSchema=s")
    access = Access(address, "t")
    told = conninfo(access)
    assert "user='u'" in told
    assert r"password='p\'w'" in told
    assert (address.silence_s, address.schema) == (7.0, "s")
    assert "p'w" not in repr(access)
    assert "user='me' password='mine'" in conninfo(Access(address, "t", "me", "mine"))


@pytest.mark.parametrize(("package", "way"), [("adbc_driver_postgresql", "open_reader"), ("psycopg", "open_writer")])
def test_a_missing_client_library_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, package: str, way: str
) -> None:
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    access = Access(parse_address("jdbc:postgresql://db/shop"), "t")
    with pytest.raises(SetupError, match=rf"(?s)jdbc:postgresql: needs the Python package {package}.*\[postgres\]"):
        getattr(dialect_of("postgresql"), way)(access)


def test_a_missing_driver_of_sqlite_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in [m for m in sys.modules if m.partition(".")[0] == "adbc_driver_sqlite"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite", None)
    access = Access(parse_address(f"jdbc:sqlite:{tmp_path}/shop.db"), "t")
    with pytest.raises(SetupError, match=r"(?s)jdbc:sqlite: needs the Python package adbc_driver_sqlite.*\[sqlite\]"):
        dialect_of("sqlite").open_writer(access)
