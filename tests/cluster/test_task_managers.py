"""`flowrun jobmanager` and `flowrun taskmanager`: jobs as text, compiled by each process, over TCP."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster.clusters import cluster, end, free_port
from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, children, kill, write_pipeline
from tests.end_to_end.processes import newest, started, wait_for
from tests.end_to_end.running import json_rows
from tests.runtime.rpc.certificates import make_authority, make_identity, needs_openssl

Process = subprocess.Popen[str]


@pytest.mark.parametrize("host", ["0.0.0.0", "no.such.host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_of_this_machine_is_refused_before_slots_are_offered(tmp_path: Path, host: str) -> None:
    with started("taskmanager", "--jobmanager", f"127.0.0.1:{free_port()}", "--host", host, cwd=tmp_path) as manager:
        _, said = manager.communicate(timeout=60)
    assert manager.returncode == 2, said
    assert "--host" in said
    assert host in said
    assert "Traceback" not in said


def test_a_job_runs_on_task_managers_and_survives_them(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=30_000, rate=4_000)
    with cluster(tmp_path, file) as (run, managers):
        wait_for(lambda: newest(tmp_path), run)
        for session in children(managers[0].pid):
            kill(session)
        known = newest(tmp_path)
        wait_for(lambda: newest(tmp_path) > known + 1, run)
        _, said = run.communicate(timeout=60)
        assert run.returncode == 0, said
        assert "another takes its place" in end(managers[0])
        assert "the job manager is gone" in end(managers[1], signal.SIGINT)
    check_counts(tmp_path, 30_000)


def test_who_has_another_secret_is_refused(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path)
    (tmp_path / "other").write_text("5" * 64)
    (tmp_path / "other").chmod(0o600)
    with cluster(tmp_path, file, managers=0) as (run, _):
        place = str(run.args[run.args.index("--listen") + 1])  # type: ignore[union-attr,index,arg-type]
        with started("taskmanager", "--jobmanager", place, "--secret-file", "other", cwd=tmp_path) as stranger:
            _, said = stranger.communicate(timeout=20)
    assert stranger.returncode == 1
    assert "refused the connection: it has another shared secret" in said


@pytest.mark.exhaustive
@needs_openssl
def test_certificates_take_the_place_of_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    authority = make_authority(tmp_path / "authority")
    one, two = make_identity(tmp_path / "one", authority), make_identity(tmp_path / "two", authority)
    stranger = make_identity(tmp_path / "stranger", make_authority(tmp_path / "other"))
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=10_000)
    place = f"127.0.0.1:{free_port()}"
    with started("jobmanager", file, "--listen", place, "--tls", one, "--no-live", cwd=tmp_path) as run:
        assert run.stderr is not None
        told = next((line for line in run.stderr if "flowrun taskmanager" in line), "")
        assert f"--jobmanager {place} --tls " in told
        joining = ("taskmanager", "--jobmanager", place, "--slots", 1, "--compression", "lz4")
        with started(*joining, "--tls", stranger, cwd=tmp_path) as refused:
            _, said = refused.communicate(timeout=30)
        assert refused.returncode == 1
        assert "its certificate is not trusted here" in said
        assert "certificates of one authority" in said
        with started(*joining, "--tls", two, cwd=tmp_path), started(*joining, "--tls", two, cwd=tmp_path):
            _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert not (tmp_path / ".flowrun").exists(), "no secret is made"
    check_counts(tmp_path, 10_000)


@pytest.mark.exhaustive
def test_nobody_is_looked_for_for_ever(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("5" * 64)
    (tmp_path / "secret").chmod(0o600)
    place = f"127.0.0.1:{free_port()}"
    joining = ("taskmanager", "--jobmanager", place, "--secret-file", "secret", "--patience", "300ms")
    with started(*joining, cwd=tmp_path) as alone:
        _, said = alone.communicate(timeout=20)
    assert alone.returncode == 1
    assert "no job manager was found within 0.3 s" in said


@pytest.mark.exhaustive
def test_secret_values_of_the_command_line_reach_the_task_managers_and_nobody_else(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=2_000, rate=1_000_000)
    file.write_text(file.read_text().replace("path: out", "path: '${PLACE}'"))
    with cluster(tmp_path, file, "--secret-var", "PLACE=out/treasure") as (run, managers):
        _, said = run.communicate(timeout=60)
        assert run.returncode == 0, said
        said += "".join(map(end, managers))
    assert "treasure" not in said
    assert json_rows(tmp_path / "out" / "treasure")


@pytest.mark.exhaustive
def test_a_process_that_compiles_another_job_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_pipeline(tmp_path)
    file.write_text(file.read_text().replace("fields.k.max: 20", "fields.k.max: ${MOST_KEYS}"))
    monkeypatch.setenv("MOST_KEYS", "20")
    place, secret = f"127.0.0.1:{free_port()}", tmp_path / "secret"
    with started("jobmanager", file, "--listen", place, "--secret-file", secret, cwd=tmp_path) as run:
        wait_for(secret.exists, run)
        monkeypatch.setenv("MOST_KEYS", "30")
        joining = ("taskmanager", "--jobmanager", place, "--secret-file", secret, "--slots", 2)
        with started(*joining, cwd=tmp_path):
            _, said = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "is compiled otherwise in this process than by the job manager" in said


@pytest.mark.exhaustive
def test_programs_run_on_task_managers(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from flowrun.core.schema import Schema\n"
        "from flowrun.core.types import BIGINT\n"
        "from flowrun.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment('doubled', parallelism=2)\n"
        "numbers = Schema.of(n=BIGINT)\n"
        "options = {'number-of-rows': 1000, 'rows-per-second': 1000000, 'fields.n.kind': 'sequence',"
        " 'fields.n.start': 0, 'fields.n.end': 999}\n"
        "stream = env.from_connector('datagen', numbers, options, name='numbers')\n"
        "doubled = stream.rebalance().map(lambda row: {'n': 2 * row['n']}, numbers)\n"
        "doubled.to_connector('filesystem', {'path': 'out'}, format='json', name='out')\n"
        "env.execute()\n"
    )
    with cluster(tmp_path, "job.py") as (run, _):
        _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert sorted(row["n"] for row in json_rows(tmp_path / "out")) == list(range(0, 2000, 2))  # type: ignore[type-var]


@pytest.mark.exhaustive
def test_each_slot_of_a_task_manager_is_a_process_which_is_replaced_when_it_dies(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=40_000)
    place, secret = f"127.0.0.1:{free_port()}", tmp_path / "secret"
    with started("jobmanager", file, "--listen", place, "--secret-file", secret, "--no-live", cwd=tmp_path) as run:
        wait_for(secret.exists, run)
        joining = ("taskmanager", "--jobmanager", place, "--secret-file", secret, "--slots", 3, "--patience", "1s")
        with started(*joining, cwd=tmp_path) as manager:
            wait_for(lambda: newest(tmp_path), run)
            (session,) = children(manager.pid)
            (forks,) = children(session)
            workers = children(forks)
            assert len(workers) == 3
            for worker in workers:
                kill(worker)
            known = newest(tmp_path)
            wait_for(lambda: newest(tmp_path) > known + 1, run)
            _, said = run.communicate(timeout=60)
            assert run.returncode == 0, said
            _, said = manager.communicate(timeout=30)
            assert manager.returncode == 1
            assert said.count("was killed by SIGKILL: another takes its place") == 3
            assert "the job manager is gone (it closed the connections)" in said
            assert "no job manager was found within 1 s" in said
    check_counts(tmp_path, 40_000)
