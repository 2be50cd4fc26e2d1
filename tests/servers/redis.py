"""A Redis server, from Debian's package."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.kafka import free_ports
from tests.servers.needed import give_up

PASSWORD = "redis-secret-word"
_START_TIMEOUT_S = 30


class RedisServerProcess:
    """One server with a password, whose port stays the same when it is started again. What it holds is on disk after each command."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = {
            "port": self.port, "bind": "127.0.0.1", "requirepass": PASSWORD, "dir": self._folder, "appendonly": "yes",
            "appendfsync": "always", "daemonize": "no", "save": "",
        }  # fmt: skip
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(["redis-server", *arguments], stdout=log, stderr=log)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            assert time.monotonic() < deadline, (self._folder / "server.log").read_text()[-2000:]
            time.sleep(0.05)

    def _answers(self) -> bool:
        import redis

        try:
            return bool(self.client().ping())
        except redis.exceptions.ConnectionError:
            return False

    def client(self) -> Any:
        """A client of its own."""
        import redis

        return redis.Redis(port=self.port, password=PASSWORD)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it in good order, or kill it."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(30)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServerProcess]:
    """The server of the test run. Who stops it must start it again."""
    if shutil.which("redis-server") is None:
        give_up("there is no redis-server: .ci/install_servers installs it")
    server = RedisServerProcess(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.end()


@pytest.fixture
def redis_client(redis_server: RedisServerProcess) -> Iterator[Any]:
    """A client of the server, which is empty."""
    client = redis_server.client()
    client.flushall()
    yield client
    client.close()
