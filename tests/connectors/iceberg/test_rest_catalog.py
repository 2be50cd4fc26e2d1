"""Tables in a REST catalog, whose answers may be lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg")

from flowrun.errors import ConnectorError
from flowrun.testing.connector_conformance import SourceDrive, writer_context
from tests.connectors.iceberg.rest_catalog import TOKEN, RestCatalog, rest_catalog
from tests.connectors.iceberg.tables import batch, rows, sink, source, table
from tests.connectors.iceberg.test_sink import write

pytestmark = pytest.mark.exhaustive
ROWS = [(1, "a", 1.5), (2, "b", None)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalog]:
    with rest_catalog(tmp_path) as made:
        yield made


def reached(server: RestCatalog, token: str = TOKEN) -> dict[str, object]:
    return {"catalog-type": "rest", "uri": server.uri, "warehouse": None, "token": token}


@pytest.mark.parametrize("partitions", [(), ("item",)])
def test_a_table_is_created_written_changed_and_read(
    tmp_path: Path, server: RestCatalog, partitions: tuple[str, ...]
) -> None:
    made = sink(tmp_path, partitions=partitions, **reached(server))
    made.create_committer().commit(write(made, batch(ROWS)))
    keyed = sink(tmp_path, keys=("id",), **reached(server))
    keyed.create_committer().commit(write(keyed, batch([(2, "B", 2.0), (3, "c", 3.0)]), attempt="b"))
    assert rows(tmp_path) == [(1, "a", 1.5), (2, "B", 2.0), (3, "c", 3.0)]
    assert sorted(SourceDrive(source(tmp_path, **reached(server))).run()) == rows(tmp_path)
    assert table(tmp_path).spec().is_unpartitioned() is not bool(partitions)


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_commit_whose_answer_is_lost_is_not_repeated(
    tmp_path: Path, server: RestCatalog, keys: tuple[str, ...]
) -> None:
    made = sink(tmp_path, keys=keys, **reached(server))
    given = write(made, batch(ROWS))
    left = ["lost"]

    def lose() -> None:
        if left:
            raise RuntimeError(left.pop())

    server.after_commit = lose
    committer: Any = made.create_committer()
    committer._sleep = lambda _: None
    committer.commit(given)
    assert not left
    assert rows(tmp_path) == ROWS
    assert len(table(tmp_path).snapshots()) == 1


def test_others_commit_meanwhile(tmp_path: Path, server: RestCatalog) -> None:
    made = sink(tmp_path, **reached(server))
    given = write(made, batch(ROWS))
    committer: Any = made.create_committer()
    inner, left = committer._open, [True]

    def open_late() -> Any:
        version = inner()
        if left and left.pop():
            table(tmp_path).append(pa.table({"id": [9], "item": ["x"], "price": [9.0]}))
        return version

    committer._open, committer._sleep = open_late, lambda _: None
    committer.commit(given)
    assert rows(tmp_path) == [*ROWS, (9, "x", 9.0)]


def test_a_wrong_token_is_one_clear_error_without_it(tmp_path: Path, server: RestCatalog) -> None:
    made = sink(tmp_path, **reached(server, token="another-token"))
    with pytest.raises(
        ConnectorError, match=r"Iceberg catalog 'test' \(rest\) cannot be reached: .*no such token"
    ) as error:
        made.create_writer(writer_context()).open()
    assert "another-token" not in str(error.value)
