"""What `docs/deployment` says, against the commands, routes and files that there are; its commands are run as processes of this machine."""

from __future__ import annotations

import ast
import json
import re
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from urllib.error import HTTPError

import click
import pytest

from flowrun.cli.ending_jobs import STOP_WITHIN
from flowrun.cli.main import cli
from flowrun.core.units import parse_duration_ms
from flowrun.rest.routes import ROUTES
from flowrun.runtime.lifecycle import JobState
from tests.cluster.clusters import free_port
from tests.deployment_files import FOLDER, ROOT, compose, fast_pipeline, manifests, pipeline_pod, pod_of, workloads
from tests.end_to_end.processes import begun, started, wait_for
from tests.end_to_end.running import json_rows
from tests.rest.control_fakes import FakeJob, controlled

PROBE = re.compile(r"http://127\.0\.0\.1:(\d+)(/\w+)")
RESTRICTED_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}


def containers() -> list[tuple[str, list[str]]]:
    """(where, the arguments of flowrun) of everything that is started."""
    found = [(m["metadata"]["name"], c["args"]) for m in workloads() for c in pod_of(m)["containers"]]
    services = compose()["services"]
    return [*found, *((name, service["command"]) for name, service in services.items())]


def parsed(arguments: list[str]) -> click.Context:
    """The options of a command, as it would get them. Raises click.ClickException."""
    name, *rest = [a.replace("$(POD_IP)", "10.0.0.7") for a in arguments]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, name
    return command.make_context(name, rest)


@pytest.mark.parametrize(("where", "arguments"), containers(), ids=[name for name, _ in containers()])
def test_commands_take_these_options(where: str, arguments: list[str]) -> None:
    with parsed(arguments) as context:
        assert context.params


def test_probes_ask_for_what_the_process_answers() -> None:
    open_paths = {route.path for route in ROUTES if route.is_open}
    asked = 0
    for workload in workloads():
        (container,) = pod_of(workload)["containers"]
        rest = [a.rpartition(":")[2] for a in container["args"] if a.startswith("--rest=")]
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container.get(name)
            if probe is None:
                continue
            asked += 1
            assert probe["periodSeconds"] > 0
            python, option, code = probe["exec"]["command"]
            assert (python, option, bool(ast.parse(code))) == ("python", "-c", True)
            ((port, path),) = PROBE.findall(code)
            assert ([port], path in open_paths) == (rest, True), code
    assert asked == 6
    ((port, path),) = PROBE.findall(compose()["services"]["jobmanager"]["healthcheck"]["test"][-1])
    assert f"--rest=127.0.0.1:{port}" in compose()["services"]["jobmanager"]["command"]
    assert path in open_paths


def test_probes_pass_at_a_job_that_runs_and_the_readiness_fails_while_it_restarts(tmp_path: Path) -> None:
    (container,) = pipeline_pod()["containers"]
    job = FakeJob()
    with controlled(job, tmp_path) as endpoint:
        probes = {
            name: PROBE.sub(rf"http://127.0.0.1:{endpoint.entry.port}\2", container[name]["exec"]["command"][-1])
            for name in ("startupProbe", "livenessProbe", "readinessProbe")
        }
        for code in probes.values():
            exec(code, {})
        job.state = JobState.RESTARTING
        exec(probes["livenessProbe"], {})
        with pytest.raises(HTTPError, match="503"):
            exec(probes["readinessProbe"], {})


def test_a_grace_period_is_longer_than_what_happens_in_it() -> None:
    periods = {m["metadata"]["name"]: pod_of(m)["terminationGracePeriodSeconds"] * 1_000 for m in workloads()}
    periods |= {name: parse_duration_ms(s["stop_grace_period"]) for name, s in compose()["services"].items()}
    checked = 0
    for name, arguments in containers():
        if arguments[0] == "taskmanager":
            continue
        within = next((a.partition("=")[2] for a in arguments if a.startswith("--stop-within=")), STOP_WITHIN)
        assert parse_duration_ms(within) + 10_000 <= periods[name], name
        checked += 1
    assert checked == 3


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_manifests_fit_the_schemas_of_kubernetes(version: str) -> None:
    """No key that it does not know, and no value of another type."""
    schemas = pytest.importorskip("kubernetes_validate", reason="it is of the extra [dev]: pip install -e '.[dev]'")
    found = manifests()
    for manifest in found:
        schemas.validate(manifest, version, strict=True)
    wrong = next(m for m in found if m["kind"] == "StatefulSet")
    pod_of(wrong)["terminationGraceSeconds"] = 60
    with pytest.raises(schemas.ValidationError, match="terminationGraceSeconds"):
        schemas.validate(wrong, version, strict=True)


def test_pods_may_run_where_they_are_restricted() -> None:
    """What the Pod Security Standard `restricted` asks of a pod."""
    for workload in workloads():
        pod = pod_of(workload)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
        assert all(set(volume) - {"name"} <= RESTRICTED_VOLUMES for volume in pod["volumes"])


def test_what_is_mounted_is_there_and_what_is_named_is_mounted() -> None:
    claims = {m["metadata"]["name"] for m in manifests() if m["kind"] == "PersistentVolumeClaim"}
    services = {m["metadata"]["name"] for m in manifests() if m["kind"] == "Service"}
    for workload in workloads():
        spec = workload["spec"]
        pod = pod_of(workload)
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        volumes = {v["name"]: v for v in pod["volumes"]}
        assert {
            v["persistentVolumeClaim"]["claimName"] for v in volumes.values() if "persistentVolumeClaim" in v
        } <= claims
        if "serviceName" in spec:
            assert spec["serviceName"] in services
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            assert {m["name"] for m in container["volumeMounts"]} <= volumes.keys()
            places = tuple(m["mountPath"] for m in container["volumeMounts"])
            for argument in container.get("args", ()):
                path = argument.rpartition("=")[2]
                assert not path.startswith("/") or path.startswith(places), argument
        assert pod["securityContext"]["runAsUser"] == 10001
    assert "USER 10001" in (FOLDER / "Dockerfile").read_text()


def test_the_image_installs_what_the_project_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (FOLDER / "Dockerfile").read_text()
    (extra,) = re.findall(r"'/source\[(\w+)\]'", text)
    assert extra in project["optional-dependencies"]
    versions = set(re.findall(r"^FROM python:(\d+)\.(\d+)-slim", text, re.MULTILINE))
    ((major, minor),) = versions
    least = re.findall(r">=\s*(\d+)\.(\d+)", project["requires-python"])[0]
    assert (int(major), int(minor)) >= (int(least[0]), int(least[1]))
    assert 'ENTRYPOINT ["tini", "--", "flowrun"]' in text
    assert "install -y --no-install-recommends tini" in text.rpartition("\nFROM ")[2]
    assert "flowrun" in project["scripts"]
    assert compose()["x-flowrun"]["build"]["dockerfile"] == "docs/deployment/Dockerfile"


def test_the_context_of_the_image_has_what_the_package_is_made_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hatch = project["tool"]["hatch"]
    hooks = hatch["build"]["targets"]["wheel"]["hooks"]
    assert list(hooks) == ["custom"], "each hook has files that the image is made of"
    needed = {"pyproject.toml", "hatch_build.py", project["project"]["readme"], *project["project"]["license-files"]}
    needed |= {*hatch["build"]["targets"]["wheel"]["packages"], Path(hatch["version"]["path"]).parts[0]}
    lines = [x for x in (ROOT / ".dockerignore").read_text().splitlines() if x and not x.startswith("#")]
    assert lines[0] == "*"
    assert {x.removeprefix("!") for x in lines if x.startswith("!")} == needed
    assert all((ROOT / name).exists() for name in needed)
    assert re.findall(r"^COPY (?!--from)(\S+) ", (FOLDER / "Dockerfile").read_text(), re.MULTILINE) == ["."]


def in_folder(text: str, folder: Path) -> str:
    """A text of the deployment with its folders below another one."""
    return text.replace("/state", str(folder / "state")).replace("/pipelines", str(folder / "pipelines"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A volume, and the pipeline for it, faster."""
    (tmp_path / "state").mkdir()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.sql").write_text(in_folder(fast_pipeline(), tmp_path))
    return tmp_path


@contextmanager
def composed(folder: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """The services of the compose file as processes on loopback."""
    cluster, rest = free_port(), free_port()
    hosts = {"jobmanager:6123": f"127.0.0.1:{cluster}", "127.0.0.1:8081": f"127.0.0.1:{rest}"}
    services = compose()["services"]
    with ExitStack() as stack:
        processes = {}
        for name, service in services.items():
            arguments = [in_folder(a, folder) for a in service["command"]]
            for said, here in hosts.items():
                arguments = [a.replace(said, here) for a in arguments]
            arguments = [a.replace(f"--host={name}", "--host=127.0.0.1") for a in arguments]
            processes[name] = stack.enter_context(started(*arguments, cwd=folder))
            if name == "jobmanager":
                probe = service["healthcheck"]["test"][-1].replace("127.0.0.1:8081", f"127.0.0.1:{rest}")
                wait_for(partial(_succeeds, probe), processes[name])
        yield processes


def _succeeds(code: str) -> bool:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def rows(folder: Path) -> Counter[tuple[object, object]]:
    return Counter((row["window_start"], row["shop"]) for row in json_rows(folder / "state" / "output"))


@pytest.mark.exhaustive
def test_the_compose_file_is_a_cluster_of_two_workers(folder: Path) -> None:
    with composed(folder) as services:
        at = next(a for a in services["jobmanager"].args if str(a).startswith("--listen="))  # type: ignore[union-attr]
        options = ("--cluster", str(at).partition("=")[2], "--secret-file", folder / "state" / "cluster.secret")
        job = str(folder / "pipelines" / "orders.sql")
        with started("run", job, "-p", "4", "--detach", *options, cwd=folder) as submitted:
            assert submitted.wait(60) == 0, submitted.communicate()[1]
        wait_for(lambda: len(rows(folder)) > 10, services["jobmanager"])
        with started("stop", "orders", *options, cwd=folder) as stopped:
            assert stopped.wait(60) == 0, stopped.communicate()[1]
        for service in reversed(services.values()):
            service.send_signal(signal.SIGTERM)
            service.communicate(timeout=30)
        assert [service.returncode for service in services.values()] == [0, 130, 130]
    assert set(rows(folder).values()) == {1}


@pytest.mark.exhaustive
def test_a_pod_that_is_ended_leaves_a_savepoint_and_the_next_one_goes_on(folder: Path) -> None:
    (container,) = pipeline_pod()["containers"]
    port = free_port()
    arguments = [in_folder(a, folder).replace("127.0.0.1:8081", f"127.0.0.1:{port}") for a in container["args"]]
    lives = []
    for life in range(3):
        with begun(["-m", "flowrun", *arguments], cwd=folder) as process:
            seen = len(rows(folder))
            wait_for(lambda: len(rows(folder)) > seen, process)  # noqa: B023 - within this life
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                assert json.load(answer) == {"status": "ok"}
            process.send_signal(signal.SIGKILL if life == 1 else signal.SIGTERM)
            lives.append((process.wait(60), process.communicate()[1]))
    assert [code for code, _ in lives] == [130, -signal.SIGKILL, 130]
    assert "stopping: with a savepoint" in lives[0][1]
    assert "resuming from savepoint" in lives[1][1]
    assert len(list((folder / "state" / "savepoints").iterdir())) == 2
    found = rows(folder)
    assert set(found.values()) == {1}
    windows = sorted({str(window) for window, _ in found})
    assert len(found) == 5 * len(windows), "each shop is in each window"
