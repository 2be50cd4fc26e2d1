"""A server that speaks S3: moto, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from tests.servers.kafka import free_ports

ACCESS_KEY, SECRET_KEY = "alice", "s3-secret-word"


class S3Server:
    """Keeps buckets in memory, and asks nobody for the right key."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._buckets = 0
        with (folder / "server.log").open("wb") as log:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """The options of a table there."""
        return {
            "s3.endpoint": self.endpoint, "s3.region": "us-east-1", "s3.access-key": ACCESS_KEY, "s3.secret-key": SECRET_KEY,
        }  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        """For what has no options: folders of checkpoints."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint, "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }  # fmt: skip

    def filesystem(self) -> pafs.FileSystem:
        """As a user of another tool sees it."""
        return pafs.S3FileSystem(
            access_key=ACCESS_KEY, secret_key=SECRET_KEY, endpoint_override=f"127.0.0.1:{self.port}", scheme="http",
            region="us-east-1", allow_bucket_creation=True,
        )  # fmt: skip

    def _answers(self) -> bool:
        try:
            self.filesystem().get_file_info(pafs.FileSelector("", allow_not_found=True))
        except OSError:
            return False
        return True

    def create_bucket(self) -> str:
        """A new, empty one."""
        self._buckets += 1
        name = f"bucket-{self._buckets}"
        self.filesystem().create_dir(name)
        return name

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server of the test run."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.close()
