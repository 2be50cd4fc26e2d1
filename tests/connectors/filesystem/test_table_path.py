"""Paths in processes with other working directories."""

from __future__ import annotations

import os
import pickle
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.connectors.filesystem.store_options import store_of
from flowrun.connectors.filesystem.table_path import TablePath, list_files
from flowrun.core.options import Options
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import ConnectorError, OptionError
from flowrun.operators.factories import SinkOperatorFactory
from flowrun.state.storage.state_path import resolve
from flowrun.testing import OperatorHarness
from tests.connectors.filesystem.tables import read, sink, source
from tests.servers.kafka import free_ports


@pytest.mark.parametrize(
    ("text", "elsewhere"),
    [
        ("in/orders", "{here}/in/orders"),
        ("in/", "{here}/in"),
        ("in/*.json", "{here}/in/*.json"),
        ("/data", "/data"),
        ("file:///data", "/data"),
        ("s3://bucket/key", "s3://bucket/key"),
    ],
)
def test_a_relative_path_means_the_same_in_another_process(
    text: str, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = TablePath(text)
    sent = pickle.loads(pickle.dumps(path))
    monkeypatch.chdir(tmp_path)
    sent = pickle.loads(pickle.dumps(sent))
    assert (sent, hash(sent), repr(sent)) == (path, hash(path), repr(path)), "it is what the user wrote"
    if path.is_local:
        assert sent.local_path == elsewhere.format(here=tmp_path / "here")
        assert not sent.is_glob or sent.glob_pattern().fullmatch(sent.local_path.replace("*", "x"))


def write(path: Path, text: str = '{"id": 1, "day": "d"}\n') -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found(folder: Path) -> list[str]:
    return [f.path.removeprefix(f"{folder}/") for f in list_files(TablePath(str(folder)), None)]


def test_a_link_to_a_folder_that_it_is_in_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.json")
    write(tmp_path / "in" / "below" / "b.json")
    (tmp_path / "in" / "loop").symlink_to(".")
    (tmp_path / "in" / "below" / "up").symlink_to("..")
    (tmp_path / "in" / "nowhere").symlink_to("missing")
    assert found(tmp_path / "in") == ["a.json", "below/b.json"]


def test_other_links_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "a.json")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "b.json").symlink_to(tmp_path / "elsewhere" / "a.json")
    assert found(tmp_path / "in") == ["b.json", "linked/a.json"]


def test_a_name_that_is_not_utf_8_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a.json")
    with open(os.fsencode(tmp_path) + b"/caf\xe9.json", "wb"):
        pass
    with pytest.raises(ConnectorError, match=r"the name of .*/b'caf\\xe9\.json' is not UTF-8: it cannot be read"):
        found(tmp_path)
    for _ in range(3):  # as one who watches the folder does
        assert [f.path for f in list_files(TablePath(str(tmp_path)), None, may_be_missing=True)] == [
            f"{tmp_path}/a.json"
        ]
    assert [r.message for r in caplog.records if "caf" in r.message] == [
        f"the name of {tmp_path}/b'caf\\xe9.json' is not UTF-8: it cannot be read; it is left out until it is renamed"
    ]


def test_partitions_of_a_column_that_begins_with_an_underscore_are_read_back(tmp_path: Path) -> None:
    schema = Schema.of(id=BIGINT, _day=STRING)
    target = sink(tmp_path, "json", schema, partition_keys=("_day",))
    harness = OperatorHarness(SinkOperatorFactory(target))
    harness.push(pa.record_batch([pa.array([1, 2]), pa.array(["x", "y"])], names=["id", "_day"]))
    harness.end_input()
    target.create_committer().commit(harness.committables)
    assert sorted(read(source(tmp_path, "json", schema, partition_keys=("_day",)))) == [(1, "x"), (2, "y")]


def test_a_partition_column_whose_folders_would_be_hidden_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"partition column '\.day' begins with '\.'"):
        sink(tmp_path, "json", Schema.of(**{"id": BIGINT, ".day": STRING}), partition_keys=(".day",))


def test_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region of a bucket is asked for before anything is read."""

    class Unreachable:
        @staticmethod
        def from_uri(uri: str) -> None:
            raise OSError(f"When resolving region for bucket: could not resolve hostname\nof {uri}")

    monkeypatch.setattr(pa.fs, "FileSystem", Unreachable)
    with pytest.raises(
        ConnectorError, match="path 's3://bucket/orders' cannot be opened: When resolving region"
    ) as raised:
        TablePath("s3://bucket/orders").open()
    assert raised.value.retryable
    assert "\nof" not in str(raised.value)


class RefusingStore:
    """A store whose client says what Azure's does where the login fails."""

    def get_file_info(self, path: str) -> None:
        raise pa.ArrowException("Unknown error: Failed to get token\nSee https://example.com")


def test_a_store_that_lets_nobody_in_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TablePath, "open", lambda _: (RefusingStore(), "c/x"))
    with pytest.raises(ConnectorError, match="cannot be listed: Unknown error: Failed to get token") as raised:
        list_files(TablePath("abfss://c@account.dfs.core.windows.net/x"), None)
    assert raised.value.hint == "check where it is and its credentials: docs/storage.md"


@pytest.mark.parametrize(("more", "limit_s"), [("", 30), ("?retry_limit_seconds=7", 7)])
def test_googles_client_does_not_try_again_for_a_quarter_of_an_hour(more: str, limit_s: int) -> None:
    at = TablePath(f"gs://anonymous@shop/in{more}").open()[0]
    state = resolve(f"gs://anonymous@shop/state{more}").filesystem
    for filesystem in (at, state):
        _, arguments = filesystem.__reduce__()
        assert arguments[0]["retry_time_limit"] == timedelta(seconds=limit_s)


@pytest.mark.exhaustive
def test_a_google_store_that_cannot_be_reached_is_one_clear_error() -> None:
    (port,) = free_ports(1)
    path = f"gs://anonymous@shop/in?scheme=http&endpoint_override=127.0.0.1:{port}&retry_limit_seconds=1"
    with pytest.raises(ConnectorError, match=r"(?m)cannot be listed: .*Could not connect to server$") as raised:
        list_files(TablePath(path), None)
    assert raised.value.retryable is not False
    assert "docs/storage.md" in str(raised.value.hint)


def test_an_option_says_where_a_store_of_googles_protocol_is() -> None:
    path = "gs://anonymous@shop/in"
    store = store_of(Options({"gs.endpoint": "http://localhost:4443"}), path)
    found, at = TablePath(path, store=store).open()
    expected, _ = TablePath(f"{path}?scheme=http&endpoint_override=localhost:4443").open()
    assert at == "shop/in"
    assert found == expected
    assert found != TablePath(path).open()[0]
    globbed = TablePath(f"{path}/*.json", store=store)
    assert globbed.open() == (expected, "shop/in")
    assert pickle.loads(pickle.dumps(globbed)).open() == (expected, "shop/in")
