"""The image is built, and containers of it are started as the compose file and the manifests say.

They need an engine of containers, Docker or Podman, and the image that the recipe begins with. `FLOWRUN_IMAGE_BUILD` has further options
of the build, such as `--network host` behind a proxy.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flowrun.core.record import record
from flowrun.core.units import parse_duration_ms
from tests.deployment_files import FOLDER, ROOT, compose, fast_pipeline, pipeline_pod, pod_of, workloads

pytestmark = pytest.mark.soak

KILLED = 128 + 9
"""The exit code of a container that did not end within its grace period."""


@record(eq=False)
class Engine:
    """What builds images and runs containers.

    Attributes:
        name: of its command.
        mark: that begins the names of all that a test makes.
    """

    name: str
    mark: str

    def ask(self, *arguments: object, code: int | None = 0) -> str:
        """What a command of it prints, both streams, after it ended with this code; None: with any."""
        done = subprocess.run(
            [self.name, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        assert code is None or done.returncode == code, f"{self.name} {arguments}: {done.stdout[-4_000:]}"
        return done.stdout

    def has(self, *arguments: object) -> bool:
        """Whether a command of it ends well."""
        return subprocess.run([self.name, *map(str, arguments)], capture_output=True, check=False).returncode == 0


@record(eq=False)
class Container:
    """A container of the image with a volume for state, which outlives it, and a folder of pipelines.

    Attributes:
        engine: that runs it.
        name: by which the engine knows it.
        host: by which containers reach it.
    """

    engine: Engine
    name: str
    host: str

    def run(self, *arguments: object) -> str:
        """A command within it."""
        return self.engine.ask("exec", self.name, *arguments)

    def log(self) -> str:
        return self.engine.ask("logs", self.name)

    def exit_code(self) -> int:
        return int(self.engine.ask("inspect", "-f", "{{.State.ExitCode}}", self.name))

    def end(self, grace_s: float) -> float:
        """Send SIGTERM, and SIGKILL after the grace period; gives how many seconds it took."""
        begin = time.monotonic()
        self.engine.ask("stop", "-t", int(grace_s), self.name)
        return time.monotonic() - begin

    def remove(self) -> None:
        self.engine.ask("rm", "-f", self.name)

    def rows(self) -> Counter[tuple[str, int]]:
        """How often each window of each shop was written."""
        lines = self.run("sh", "-c", "cat /state/output/*.json 2>/dev/null || true").splitlines()
        return Counter((row["window_start"], row["shop"]) for row in map(json.loads, lines))

    def wait_for(self, condition: Callable[[], object], limit_s: float = 120) -> None:
        """Wait until it has got there."""
        deadline, pause = time.monotonic() + limit_s, threading.Event()
        while not condition():
            assert time.monotonic() < deadline, f"{self.name} did not get there: {self.log()[-4_000:]}"
            pause.wait(0.1)


@pytest.fixture(scope="module")
def engine() -> Engine:
    for name in ("docker", "podman"):
        found = Engine(name, f"flowrun-test-{secrets.token_hex(4)}")
        if shutil.which(name) is not None and found.has("info"):
            return found
    pytest.skip("no engine of containers answers: there is neither `docker` with its daemon nor `podman`")


@pytest.fixture(scope="module")
def image(engine: Engine) -> Iterator[str]:
    recipe = FOLDER / "Dockerfile"
    for base in sorted(set(re.findall(r"^FROM (\S+)", recipe.read_text(), re.MULTILINE))):
        if not engine.has("image", "inspect", base) and not engine.has("pull", base):
            pytest.skip(f"the image {base}, with which the recipe begins, is neither here nor can it be pulled")
    options = shlex.split(os.environ.get("FLOWRUN_IMAGE_BUILD", ""))
    engine.ask("build", *options, "-f", recipe, "-t", engine.mark, ROOT)
    yield engine.mark
    engine.ask("image", "rm", engine.mark)


@pytest.fixture
def start(engine: Engine, image: str, tmp_path: Path) -> Iterator[Callable[..., Container]]:
    """Starts containers `(name, options of the engine, arguments of flowrun)`, which share a volume, a folder and a network."""
    (tmp_path / "orders.sql").write_text(fast_pipeline())
    tmp_path.chmod(0o755)
    begun: list[Container] = []
    engine.ask("volume", "create", engine.mark)
    engine.ask("network", "create", "--internal", engine.mark)

    def container(name: str, options: list[str], arguments: list[str]) -> Container:
        made = Container(engine, f"{engine.mark}-{name}", name)
        shared = ["-v", f"{engine.mark}:/state", "-v", f"{tmp_path}:/pipelines:ro", "--network", engine.mark]
        begun.append(made)
        engine.ask("run", "-d", "--name", made.name, *shared, "--network-alias", name, *options, image, *arguments)
        return made

    yield container
    for made in begun:
        if engine.has("inspect", made.name):  # a test may have removed it
            made.remove()
    engine.ask("network", "rm", engine.mark)
    engine.ask("volume", "rm", engine.mark)


def as_a_pod(pod: dict[str, Any]) -> list[str]:
    """Options of an engine that start a container under the limits of a pod."""
    (container,) = pod["containers"]
    limits = container["securityContext"]
    assert limits["allowPrivilegeEscalation"] is False
    dropped = [option for name in limits["capabilities"]["drop"] for option in ("--cap-drop", name)]
    security = pod["securityContext"]
    user = ["--user", str(security["runAsUser"]), "--group-add", str(security["fsGroup"])]
    return [*user, "--security-opt", "no-new-privileges", *dropped]


def test_the_image_has_flowrun_with_all_connectors(engine: Engine, image: str) -> None:
    run = ["run", "--rm", "--network", "none"]
    assert "reader of JSON: compiled" in engine.ask(*run, image, "--version")
    look = "id -u; pwd; stat -c %u /state; ls /source 2>&1 || true; python -c 'import confluent_kafka, pyiceberg, deltalake, psycopg'"
    uid, folder, owner, source = engine.ask(*run, "--entrypoint", "sh", image, "-c", look).splitlines()
    assert (uid, folder, owner) == ("10001", "/pipelines", "10001")
    assert "No such file" in source


def test_a_pod_that_is_ended_leaves_a_savepoint_within_its_grace_period(start: Callable[..., Container]) -> None:
    pod = pipeline_pod()
    (described,) = pod["containers"]
    logs = []
    for life in range(3):
        container = start("orders", as_a_pod(pod), described["args"])
        for probe in ("startupProbe", "readinessProbe"):
            command = described[probe]["exec"]["command"]
            container.wait_for(lambda: container.engine.has("exec", container.name, *command))  # noqa: B023
        seen = len(container.rows())
        container.wait_for(lambda: len(container.rows()) > seen + 5)  # noqa: B023
        if life == 1:
            container.engine.ask("kill", container.name)
        elif life == 2:
            found = container.rows()
            assert len(container.run("ls", "/state/savepoints").split()) == 1
        if life != 1:
            assert container.end(pod["terminationGracePeriodSeconds"]) < 30
            assert container.exit_code() == 130
        logs.append(container.log())
        container.remove()
    assert "stopping: with a savepoint" in logs[0]
    assert "resuming from savepoint" in logs[1]
    assert "resuming from checkpoint" in logs[2]
    assert set(found.values()) == {1}
    assert len(found) == 5 * len({window for window, _ in found}), "each shop is in each window"


def test_a_signal_that_comes_before_flowrun_is_ready_for_it_ends_it_too(start: Callable[..., Container]) -> None:
    (described,) = pipeline_pod()["containers"]
    container = start("orders", as_a_pod(pipeline_pod()), described["args"])
    assert container.end(30) < 20
    assert container.exit_code() != KILLED


def cluster_lives_on(head: Container, workers: list[Container], secret_file: str, grace_s: float) -> None:
    """A job runs on; a worker is killed, and the job manager ends and comes back; each row is there once, and all end in time."""
    options = ("--cluster", f"{head.host}:6123", "--secret-file", secret_file)
    head.run("flowrun", "run", "/pipelines/orders.sql", "-p", "4", "--detach", *options)
    head.wait_for(lambda: len(head.rows()) > 10)

    head.engine.ask("kill", workers[0].name)
    head.engine.ask("start", workers[0].name)
    seen = len(head.rows())
    head.wait_for(lambda: len(head.rows()) > seen + 10)

    assert head.end(grace_s) < 30
    assert head.exit_code() == 0
    assert "they go on when it is started again: 'orders'" in head.log()
    head.engine.ask("start", head.name)
    head.wait_for(lambda: "goes on after its dispatcher was lost" in head.log())
    head.wait_for(lambda: len(head.rows()) > seen + 30)

    assert "'orders' is stopped" in head.run("flowrun", "stop", "orders", *options)
    found = head.rows()
    assert all(container.end(grace_s) < 30 for container in (*workers, head))
    assert [container.exit_code() for container in (*workers, head)] == [130, 130, 0]
    assert set(found.values()) == {1}


def test_the_services_of_the_compose_file_are_a_cluster(start: Callable[..., Container]) -> None:
    services = compose()["services"]
    head = start("jobmanager", [], services["jobmanager"]["command"])
    _, *probe = services["jobmanager"]["healthcheck"]["test"]
    head.wait_for(lambda: head.engine.has("exec", head.name, *probe))
    workers = [start(name, [], service["command"]) for name, service in services.items() if name != "jobmanager"]
    grace_s = parse_duration_ms(services["jobmanager"]["stop_grace_period"]) / 1_000
    cluster_lives_on(head, workers, "/state/cluster.secret", grace_s)


def test_the_pods_of_the_manifests_are_a_cluster(
    engine: Engine, image: str, start: Callable[..., Container], tmp_path: Path
) -> None:
    manager, task_manager = (w for w in workloads() if w["kind"] == "StatefulSet")
    given = tmp_path / "given"
    given.mkdir()
    (given / "cluster.secret").write_text(secrets.token_hex(32))
    volume = f"{engine.mark}-secret"
    with volume_of_a_pod(engine, image, volume, pod_of(manager)["securityContext"]["fsGroup"]):
        mounts = ["-v", f"{volume}:/secret", "-v", f"{given}:/mounted:ro"]

        def begin(workload: dict[str, Any], name: str) -> Container:
            pod = pod_of(workload)
            ((first,), (container,)) = pod["initContainers"], pod["containers"]
            limits = [*as_a_pod(pod), *mounts]
            program, *arguments = first["command"]
            engine.ask("run", "--rm", "--network", "none", *limits, "--entrypoint", program, image, *arguments)
            return start(name, limits, [a.replace("$(POD_IP)", name) for a in container["args"]])

        name = task_manager["metadata"]["name"]
        workers = [begin(task_manager, f"{name}-{i}") for i in range(task_manager["spec"]["replicas"])]
        head = begin(manager, manager["metadata"]["name"])
        (described,) = pod_of(manager)["containers"]
        for probe in ("startupProbe", "readinessProbe"):
            command = described[probe]["exec"]["command"]
            head.wait_for(lambda: engine.has("exec", head.name, *command))  # noqa: B023
        cluster_lives_on(head, workers, "/secret/cluster.secret", pod_of(manager)["terminationGracePeriodSeconds"])
        for container in (*workers, head):
            container.remove()


@contextmanager
def volume_of_a_pod(engine: Engine, image: str, name: str, group: int) -> Iterator[None]:
    """A volume that belongs to root and is writable for a group, as an `emptyDir` is under `fsGroup`."""
    engine.ask("volume", "create", name)
    look = f"chgrp {group} /secret && chmod 2777 /secret"
    root = ["--user", "0", "--network", "none", "-v", f"{name}:/secret"]
    engine.ask("run", "--rm", *root, "--entrypoint", "sh", image, "-c", look)
    try:
        yield
    finally:
        engine.ask("volume", "rm", "-f", name, code=None)
