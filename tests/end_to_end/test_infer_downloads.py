"""`flowrun infer https://…` and `s3://…`: files that are elsewhere."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.errors import ConnectorError, PipelineError
from flowrun.runners.inference.downloads import sample_url
from flowrun.runners.inference.sample import Asked
from tests.end_to_end.conftest import Command
from tests.servers.http import HttpServer, Reply
from tests.servers.s3 import ACCESS_KEY, SECRET_KEY, S3Server

LINES = b'{"id": 1, "at": "2024-01-01T10:00:00Z"}\n{"id": 2, "at": "2024-01-01T10:00:05Z"}\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "kind", "body", "file"),
    [
        ("orders.json", "text/plain", LINES, "orders.json"),
        ("orders", "application/x-ndjson; charset=utf-8", LINES, "orders.json"),
        ("export?what=orders", "text/csv", b"id,at\n1,2024-01-01 10:00:00\n2,2024-01-01 10:00:01\n", "export.csv"),
        ("data", "application/octet-stream", parquet(), "data"),
    ],
)
def test_a_file_is_kept_beside_the_pipeline(
    flowrun: Command, http_server: HttpServer, name: str, kind: str, body: bytes, file: str
) -> None:
    http_server.answer = lambda _: Reply(body=body, headers={"Content-Type": kind})
    done = flowrun("infer", f"{http_server.url}/{name}", "-o", "pipelines/made.yaml")
    assert done.code == 0, done.err
    text = Path("pipelines/made.yaml").read_text()
    assert "Downloaded from http://127.0.0.1" in text
    assert Path("pipelines", file).read_bytes() == body
    shown = flowrun("preview", "pipelines/made.yaml", "--format", "json")
    assert [json.loads(line)["id"] for line in shown.out.splitlines()] == [1, 2], shown.err
    again = flowrun("infer", f"{http_server.url}/{name}", "-o", "pipelines/other.yaml")
    assert again.code == 2
    assert "exists; nothing was written" in again.err


def test_a_project_of_a_file_that_is_elsewhere(
    flowrun: Command, http_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    http_server.answer = lambda _: Reply(body=LINES)
    made = flowrun("init", "project", "--from", f"{http_server.url}/orders.json")
    assert made.code == 0, made.err
    assert "path: data/orders.json" in Path("project/pipeline.yaml").read_text()
    monkeypatch.chdir("project")
    assert Path("data/orders.json").read_bytes() == LINES
    tested = flowrun("test")
    assert tested.code == 0, tested.out + tested.err


def test_without_a_file_to_write_nothing_is_left(flowrun: Command, http_server: HttpServer, folder: Path) -> None:
    http_server.answer = lambda _: Reply(body=LINES)
    url = http_server.url.replace("://", "://me:url-secret-word@")
    done = flowrun("infer", f"{url}/orders.json?token=query-secret-word")
    assert done.code == 0, done.err
    assert f"curl -fL -o orders.json {http_server.url}/orders.json" in done.out
    assert "secret-word" not in done.out + done.err
    assert http_server.received[0].headers["authorization"].startswith("Basic ")
    assert list(folder.iterdir()) == []


def test_a_login_is_not_passed_on(flowrun: Command, http_server: HttpServer) -> None:
    http_server.replies.append(Reply(302, headers={"Location": f"{http_server.url}/there.json"}))
    http_server.answer = lambda _: Reply(body=LINES)
    done = flowrun("infer", f"{http_server.url.replace('://', '://me:url-secret-word@')}/here.json")
    assert done.code == 0, done.err
    assert [("authorization" in r.headers) for r in http_server.received] == [True, False]


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (Reply(401), 1, "HTTP 401 Unauthorized\n  hint: give user and password in the URL"),
        (Reply(404), 1, "HTTP 404 Not Found\n  hint: check the URL"),
        (Reply(dropped=True), 1, "cannot be downloaded"),
        (Reply(302, headers={"Location": "ftp://127.0.0.1/x"}), 1, "cannot be downloaded"),
        (Reply(body=b"<html>", headers={"Content-Type": "text/html"}), 2, "is a web page, no data"),
        (Reply(body=b"hello", headers={"Content-Type": "text/plain"}), 2, "--format json|csv"),
        (Reply(body=b'[{"a": 1}]', headers={"Content-Type": "application/json"}), 2, "is no JSON object"),
    ],
)
def test_what_cannot_be_had(
    flowrun: Command, http_server: HttpServer, folder: Path, reply: Reply, code: int, said: str
) -> None:
    http_server.replies.append(reply)
    done = flowrun("infer", f"{http_server.url}/data", "-o", "made.yaml")
    assert done.code == code, done.err
    assert said in done.err
    assert list(folder.iterdir()) == []


def test_limits_of_size_and_time(http_server: HttpServer, folder: Path) -> None:
    http_server.answer = lambda _: Reply(body=LINES)
    asked = Asked(f"{http_server.url}/orders.json", download_to=folder)
    with pytest.raises(PipelineError, match="has more than 0 MB"):
        sample_url(asked, most_bytes=50)
    with pytest.raises(ConnectorError, match="was not downloaded within 0 s"):
        sample_url(asked, most_seconds=0)
    assert list(folder.iterdir()) == []


def test_no_server(flowrun: Command) -> None:
    done = flowrun("infer", "http://127.0.0.1:1/x.json")
    assert done.code == 1
    assert "http://127.0.0.1:1/x.json cannot be downloaded: [Errno 111] Connection refused" in done.err
    assert flowrun("infer", "https:///x.json").code == 2


@pytest.mark.exhaustive
def test_a_folder_of_a_store(flowrun: Command, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = s3.create_bucket()
    files = s3.filesystem()
    for day in (1, 2):
        with files.open_output_stream(f"{bucket}/orders/day=2024-01-0{day}/a.json") as out:
            out.write(LINES)
    key = f"{ACCESS_KEY}:{SECRET_KEY}"
    done = flowrun(
        "infer",
        f"s3://{key}@{bucket}/orders?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{s3.port}",
        "-o",
        "made.yaml",
    )
    assert done.code == 0, done.err
    text = Path("made.yaml").read_text()
    assert SECRET_KEY not in text
    assert 's3.secret-key: "${AWS_SECRET_ACCESS_KEY}"' in text
    assert "partition_by: [day]" in text
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    shown = flowrun("preview", "made.yaml", "--format", "json")
    assert len(shown.out.splitlines()) == 4, shown.err
    without_key = flowrun("infer", f"s3://{bucket}/orders")
    assert without_key.code == 0, without_key.err
    nothing = flowrun("infer", f"s3://{bucket}/nothing")
    assert nothing.code == 1
    assert "does not exist" in nothing.err
