"""Session clusters: many jobs on one dispatcher and its task managers."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.clusters import Session, all_gone, free_port, session
from tests.cluster.worker_jobs import CHECKPOINTS, check_counts, children, is_alive, kill, write_pipeline
from tests.end_to_end.processes import newest, started, wait_for
from tests.end_to_end.running import json_rows

FASTER = ("--set", "sources.rows.rows-per-second=1000000")


def numbers(folder: Path, name: str, expression: str = "id", rows: int = 1_000, parallelism: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.sql"
    file.write_text(
        f"SET 'parallelism.default' = '{parallelism}';\n"
        f"SET 'pipeline.name' = '{name}';\n"
        "CREATE TABLE ids (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = "
        f"'{rows}', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{rows - 1}');\n"
        f"CREATE TABLE found (v BIGINT) WITH ('connector' = 'filesystem', 'path' = '{name}-out', 'format' = 'json');\n"
        f"INSERT INTO found SELECT {expression} FROM ids;\n"
    )
    return file


def found(folder: Path, name: str) -> list[int]:
    return sorted(row["v"] for row in json_rows(folder / f"{name}-out"))  # type: ignore[misc]


@pytest.mark.exhaustive
def test_jobs_are_submitted_followed_and_stopped_and_survive_their_processes(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=200_000, rate=8_000)
    with session(tmp_path, managers=1, slots=3) as cluster:
        job_id = cluster.flowrun("run", file, "--detach").stdout.strip()
        wait_for(lambda: newest(tmp_path) >= 1, cluster.dispatcher)
        listed = cluster.job("counted")
        assert (listed["job_id"], listed["state"]) == (job_id, "running")
        kill(int(listed["pid"]))
        number = newest(tmp_path)
        wait_for(lambda: newest(tmp_path) >= number + 2, cluster.dispatcher)
        stopped = cluster.flowrun("stop", job_id[:8], "--savepoint", "saved")
        path = stopped.stdout.strip()
        assert Path(path).parent == tmp_path / "saved"
        followed = cluster.flowrun("resume", "--from-savepoint", path, "-p", 3, *FASTER)
        assert "finished" in followed.stderr
        assert [job["state"] for job in cluster.jobs()] == ["finished", "finished"]
        assert "was killed by SIGKILL: another one goes on" in end(cluster)
    check_counts(tmp_path, 200_000)


def end(cluster: Session) -> str:
    """End the dispatcher: all processes of jobs go with it. Gives what it had said."""
    processes = {pid for pid in cluster.processes() if pid not in children(cluster.dispatcher.pid)}
    cluster.dispatcher.send_signal(signal.SIGTERM)
    _, said = cluster.dispatcher.communicate(timeout=20)
    for manager in cluster.managers:
        manager.send_signal(signal.SIGTERM)
        manager.communicate(timeout=20)
    assert all_gone(processes)
    return said


@pytest.mark.exhaustive
def test_a_cluster_is_used_by_its_rest_api(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=200_000, rate=8_000)
    numbers(tmp_path / "other", "other", "times(id)")
    port, token = free_port(), tmp_path / "token"
    served = ("--rest", f"127.0.0.1:{port}", "--token-file", token)
    with session(tmp_path, managers=1, slots=3, serving=served) as inside:
        wait_for(token.exists, inside.dispatcher)
        cluster = replace(inside, options=("--cluster", f"http://127.0.0.1:{port}", "--token-file", str(token)))
        job_id = cluster.flowrun("run", file, "--detach").stdout.strip()
        wait_for(lambda: newest(tmp_path) >= 1, cluster.dispatcher)
        assert (cluster.job("counted")["job_id"], inside.job("counted")["job_id"]) == (job_id, job_id)
        path = cluster.flowrun("stop", job_id[:8], "--savepoint", "saved").stdout.strip()
        (tmp_path / "elsewhere").mkdir()
        followed = cluster.flowrun("resume", "--from-savepoint", path, "-p", 3, *FASTER, cwd=tmp_path / "elsewhere")
        assert "finished" in followed.stderr
        mine = tmp_path / "other" / "other.sql"
        mine.write_text("CREATE FUNCTION times AS 'mine.times' LANGUAGE PYTHON;\n" + mine.read_text())
        (tmp_path / "other" / "mine.py").write_text(
            'import flowrun\n\n\n@flowrun.udf(result="BIGINT")\ndef times(value: int) -> int:\n    return value\n'
        )
        refused = cluster.flowrun("run", "other.sql", cwd=tmp_path / "other", code=2)
        assert "has Python modules of its own" in refused.stderr
        inside.flowrun("run", "other.sql", cwd=tmp_path / "other")
        end(cluster)
    check_counts(tmp_path, 200_000)


@pytest.mark.exhaustive
def test_jobs_are_rescaled_within_the_slots_that_there_are(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=200_000, rate=4_000)
    with session(tmp_path) as cluster:
        cluster.flowrun("run", file, "--detach")
        wait_for(lambda: newest(tmp_path) >= 1, cluster.dispatcher)
        assert "goes on at parallelism 4" in cluster.flowrun("rescale", "counted", "-p", 4).stderr
        refused = cluster.flowrun("rescale", "counted", "-p", 5, code=None)
        assert refused.returncode in (1, 2)
        assert "needs 5 slots, and the cluster has given it 4" in refused.stderr
        number = newest(tmp_path)
        wait_for(lambda: newest(tmp_path) >= number + 2, cluster.dispatcher)
        cluster.flowrun("rescale", "counted", "-p", 1)
        numbers(tmp_path / "other", "other", parallelism=3)
        cluster.flowrun("run", "other.sql", cwd=tmp_path / "other")  # in the slots that were given back
        assert found(tmp_path / "other", "other") == list(range(1_000))
        kill(int(cluster.job("counted")["pid"]))
        wait_for(lambda: cluster.job("counted").get("slots") == 1, cluster.dispatcher)  # as it was rescaled
        stopped = cluster.flowrun("stop", "counted", "--savepoint", "saved").stderr
        (saved,) = (tmp_path / "saved").iterdir()
        assert f"flowrun resume --from-savepoint {saved} --cluster 127.0.0.1:" in stopped, "where it ran"
        cluster.flowrun("resume", "--from-savepoint", saved, *FASTER)
        end(cluster)
    check_counts(tmp_path, 200_000)


@pytest.mark.exhaustive
def test_jobs_have_modules_of_their_own_and_wait_for_slots_in_turn(tmp_path: Path) -> None:
    for name, factor in (("doubled", 2), ("tripled", 3)):
        file = numbers(tmp_path / name, name, "times(id)", parallelism=4)
        file.write_text("CREATE FUNCTION times AS 'mine.times' LANGUAGE PYTHON;\n" + file.read_text())
        (tmp_path / name / "mine.py").write_text(
            f'import flowrun\n\n\n@flowrun.udf(result="BIGINT")\ndef times(value: int) -> int:\n    return {factor} * value\n'
        )
    numbers(tmp_path / "big", "big", parallelism=5)
    with session(tmp_path) as cluster:
        cluster.flowrun("run", "big.sql", "--detach", cwd=tmp_path / "big")
        for name, factor in (("doubled", 2), ("tripled", 3)):
            cluster.flowrun("run", f"{name}.sql", cwd=tmp_path / name)
            assert found(tmp_path / name, name) == [factor * i for i in range(1_000)]
        waiting = cluster.job("big")
        assert waiting["state"] == "created"
        assert "slots" in waiting["waits_for"]
        cluster.flowrun("cancel", "big")
        assert cluster.job("big")["state"] == "canceled"


@pytest.mark.exhaustive
def test_what_is_wrong_is_said_where_the_job_is_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "wrong.sql"
    wrong.write_text("INSERT INTO nowhere SELECT 1;\n")
    needs = numbers(tmp_path, "needs", "id + CAST('${ADDED}' AS BIGINT)")
    with session(tmp_path) as cluster:
        assert "nowhere" in cluster.flowrun("run", wrong, code=2).stderr
        monkeypatch.setenv("ADDED", "1")
        assert "ADDED" in cluster.flowrun("run", needs, code=2).stderr
        assert "--detach goes with --cluster" in _alone(tmp_path, "run", needs, "--detach")
        refused = cluster.flowrun("savepoint", "nothing", code=2).stderr
        assert "no job of yours runs on the cluster" in refused
        assert "`flowrun jobs --cluster " in refused
        assert "--workers is for jobs of this machine" in cluster.flowrun("run", needs, "--workers", 2, code=2).stderr
        (tmp_path / "other").write_text("5" * 64)
        (tmp_path / "other").chmod(0o600)
        refused = _alone(tmp_path, "jobs", *cluster.options[:2], "--secret-file", "other")
        assert "another shared secret" in refused
    place = f"127.0.0.1:{free_port()}"
    with started(
        "jobmanager", needs, "--var", "ADDED=1", "--listen", place, "--secret-file", "secret", cwd=tmp_path
    ) as one:
        assert one.stderr is not None
        next(line for line in one.stderr if "flowrun taskmanager" in line)
        other = _alone(tmp_path, "jobs", "--cluster", place, "--secret-file", "secret")
        assert "waits for other processes than this one" in other
    nobody = _alone(tmp_path, "jobs", "--cluster", f"127.0.0.1:{free_port()}", "--secret-file", "secret")
    assert "Connection refused" in nobody


def _alone(folder: Path, *arguments: object) -> str:
    with started(*arguments, cwd=folder) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode in (1, 2)
    return said


@pytest.mark.exhaustive
@pytest.mark.parametrize("who", ["dispatcher", "fork server", "task manager", "session"])
def test_nothing_is_left_of_processes_that_are_killed(tmp_path: Path, who: str) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "false", rows=60_000, rate=10_000)
    with session(tmp_path) as cluster:
        cluster.flowrun("run", file, "--detach")
        wait_for(lambda: newest(tmp_path) >= 1, cluster.dispatcher)
        below = cluster.processes()
        hosting = next(manager for manager in cluster.managers if children(manager.pid))  # both slots may be of either
        of_jobs = {pid for child in children(cluster.dispatcher.pid) for pid in children(child)}
        victim = {
            "dispatcher": cluster.dispatcher.pid,
            "fork server": next(iter(children(cluster.dispatcher.pid))),
            "task manager": hosting.pid,
            "session": next(iter(children(hosting.pid))),
        }[who]
        gone = of_jobs if who in ("dispatcher", "fork server") else set()
        kill(victim)
        if who == "session":
            wait_for(lambda: not is_alive(victim), cluster.dispatcher)
            cluster.flowrun("stop", "counted", "--savepoint", "saved")
        elif who == "task manager":
            cluster.flowrun("cancel", "counted")
        else:
            cluster.dispatcher.wait(timeout=20)
        for manager in cluster.managers:
            manager.send_signal(signal.SIGTERM)
            manager.wait(timeout=20)
        assert all_gone(gone)
        if cluster.dispatcher.poll() is None:
            end(cluster)
        assert all_gone(below)


@pytest.mark.exhaustive
def test_a_standby_takes_the_place_of_a_dispatcher_and_goes_on_with_its_jobs(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=100_000, rate=4_000)
    with ExitStack() as stack, session(tmp_path, dispatchers=2) as cluster:
        standby = cluster.standbys[0]
        numbers(tmp_path / "other", "other")
        cluster.flowrun("run", "other.sql", cwd=tmp_path / "other")
        terminal = stack.enter_context(started("run", file, "--no-live", *cluster.options, cwd=tmp_path))
        (tmp_path / "second").mkdir()
        second = write_pipeline(tmp_path / "second", CHECKPOINTS % "true", rows=100_000, rate=4_000)
        given = ("--detach", "--secret-var", "UNUSED=hidden treasure")
        secret = cluster.flowrun("run", second, *given, cwd=tmp_path / "second").stdout.strip()
        assert standby.poll() is None
        wait_for(lambda: newest(tmp_path) >= 1, cluster.dispatcher)
        kill(cluster.dispatcher.pid)
        wait_for(lambda: is_listening(cluster), standby)
        number = newest(tmp_path)
        wait_for(lambda: newest(tmp_path) >= number + 2, standby)
        states = {job["job_id"]: job["state"] for job in cluster.jobs()}
        assert states.pop(secret) == "failed"
        assert sorted(states.values()) == ["finished", "running"]
        job_id = next(job_id for job_id, state in states.items() if state == "running")
        cluster.flowrun("stop", job_id[:8], "--savepoint", "saved")
        _, said = terminal.communicate(timeout=30)
        assert terminal.returncode == 0, said
        (saved,) = (tmp_path / "saved").iterdir()
        cluster.flowrun("resume", "--from-savepoint", saved, *FASTER)
        standby.send_signal(signal.SIGTERM)
        standby.wait(timeout=20)
        assert b"treasure" not in b"".join(p.read_bytes() for p in (tmp_path / "cluster").rglob("*") if p.is_file())
    check_counts(tmp_path, 100_000)


@pytest.mark.exhaustive
def test_a_dispatcher_that_hangs_is_killed_and_a_standby_goes_on_with_its_jobs(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=100_000, rate=4_000)
    with session(tmp_path, dispatchers=2, leading=("--hang-timeout", "4s")) as cluster:
        standby = cluster.standbys[0]
        job_id = cluster.flowrun("run", file, "--detach").stdout.strip()
        wait_for(lambda: newest(tmp_path) >= 1, cluster.dispatcher)
        of_jobs = {pid for child in children(cluster.dispatcher.pid) for pid in children(child)}
        for pid in (*of_jobs, *children(cluster.dispatcher.pid), cluster.dispatcher.pid):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"leader_guard" not in command:
                os.kill(pid, signal.SIGSTOP)
        _, said = cluster.dispatcher.communicate(timeout=60)
        assert "the job manager of the cluster was ended (SIGKILL): it gave no sign of life for 4 s" in said
        wait_for(lambda: is_listening(cluster), standby)
        assert all_gone(of_jobs), "the kernel has freed the lock before they were gone"
        number = newest(tmp_path)
        wait_for(lambda: newest(tmp_path) >= number + 2, standby)
        path = cluster.flowrun("stop", job_id[:8], "--savepoint", "saved").stdout.strip()
        cluster.flowrun("resume", "--from-savepoint", path, *FASTER)
    check_counts(tmp_path, 100_000)


@pytest.mark.soak
def test_a_job_manager_process_that_hangs_is_killed_and_replaced(tmp_path: Path) -> None:
    """It takes as long as a process may give no heartbeat, close to a minute."""
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=100_000, rate=4_000)
    with session(tmp_path) as cluster:
        cluster.flowrun("run", file, "--detach")
        wait_for(lambda: newest(tmp_path) >= 1, cluster.dispatcher)
        hung = int(cluster.job("counted")["pid"])
        os.kill(hung, signal.SIGSTOP)
        wait_for(lambda: not is_alive(hung), cluster.dispatcher)
        number = newest(tmp_path)
        wait_for(lambda: newest(tmp_path) >= number + 2, cluster.dispatcher)
        assert int(cluster.job("counted")["pid"]) not in (0, hung)
        path = cluster.flowrun("stop", "counted", "--savepoint", "saved").stdout.strip()
        cluster.flowrun("resume", "--from-savepoint", path, *FASTER)
        assert "was killed by SIGKILL: another one goes on" in end(cluster)
    check_counts(tmp_path, 100_000)


def is_listening(cluster: Session) -> bool:
    return cluster.flowrun("jobs", code=None).returncode == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("number", "ending"),
    [(signal.SIGINT, ()), (signal.SIGTERM, ("--stop-savepoint", "saved")), (signal.SIGKILL, ())],
)
def test_a_cluster_on_one_machine_is_started_and_ended_by_one_command(
    tmp_path: Path, number: signal.Signals, ending: tuple[str, ...]
) -> None:
    place, secret = f"127.0.0.1:{free_port()}", tmp_path / "secret"
    starting = ("cluster", "up", "--task-managers", 2, "--slots", 2, "--listen", place, "--secret-file", secret)
    with started(*starting, *ending, cwd=tmp_path) as up:
        cluster = Session(tmp_path, up, [], ("--cluster", place, "--secret-file", str(secret)))
        wait_for(lambda: secret.exists() and is_listening(cluster), up)
        numbers(tmp_path / "small", "small", parallelism=4)
        cluster.flowrun("run", "small.sql", cwd=tmp_path / "small")
        assert found(tmp_path / "small", "small") == list(range(1_000))
        file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=100_000, rate=4_000)
        cluster.flowrun("run", file, "--detach")
        wait_for(lambda: newest(tmp_path) >= 1, up)
        if number is not signal.SIGKILL:
            cluster.flowrun("run", numbers(tmp_path / "big", "big", parallelism=5), "--detach")  # it waits for slots
        below = cluster.processes()
        up.send_signal(number)
        _, said = up.communicate(timeout=40)
        if number is not signal.SIGKILL:
            assert up.returncode == 130
            assert "'big' cancelled" in said
            place = said.split("'counted' stopped at ")[1].split()[0]
            assert Path(place).parent == tmp_path / ("saved" if ending else "state/counted")
        assert all_gone(below)
    if ending:
        with started("resume", "--from-savepoint", place, *FASTER, "--no-live", cwd=tmp_path) as resumed:
            assert resumed.wait(60) == 0
        check_counts(tmp_path, 100_000)


@pytest.mark.exhaustive
def test_a_job_is_stopped_with_the_terminal_that_follows_it_but_outlives_one_that_is_killed(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, CHECKPOINTS % "true", rows=100_000, rate=4_000)
    with session(tmp_path) as cluster:
        with started("run", file, "--no-live", *cluster.options, cwd=tmp_path) as terminal:
            wait_for(lambda: newest(tmp_path) >= 1, terminal)
            terminal.kill()
            terminal.wait()
        (before,) = cluster.jobs()
        assert before["state"] == "running"
        stopped = cluster.flowrun("stop", "counted")
        with started(
            "resume", "--from-savepoint", stopped.stdout.strip(), "--no-live", *cluster.options, cwd=tmp_path
        ) as terminal:
            number = newest(tmp_path)
            wait_for(lambda: newest(tmp_path) >= number + 1, terminal)
            terminal.send_signal(signal.SIGINT)
            _, said = terminal.communicate(timeout=30)
        assert terminal.returncode == 130
        assert "stopping: with a last checkpoint" in said
        path = said.split("flowrun resume --from-savepoint ")[1].split()[0]
        cluster.flowrun("resume", "--from-savepoint", path, *FASTER)
        end(cluster)
    check_counts(tmp_path, 100_000)


@pytest.mark.exhaustive
def test_a_program_runs_one_job_on_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(
        "from flowrun.core.schema import Schema\n"
        "from flowrun.core.types import BIGINT\n"
        "from flowrun.datastream import StreamExecutionEnvironment\n"
        "numbers = Schema.of(v=BIGINT)\n"
        "options = {'number-of-rows': 1000, 'fields.v.kind': 'sequence', 'fields.v.start': 0, 'fields.v.end': 999}\n"
        "for name, factor in (('one', 2), ('two', 3)):\n"
        "    env = StreamExecutionEnvironment(name, parallelism=2)\n"
        "    stream = env.from_connector('datagen', numbers, options, name='numbers').rebalance()\n"
        "    multiplied = stream.map(lambda row: {'v': factor * row['v']}, numbers)\n"
        "    multiplied.to_connector('filesystem', {'path': f'{name}-out'}, format='json', name='out')\n"
        "    print(env.execute().state)\n"
    )
    with session(tmp_path, managers=1) as cluster:
        ran = cluster.flowrun("run", "jobs.py", code=2)
        assert ran.stdout == "JobState.FINISHED\n"
        assert "the program runs a second job, 'two', but only one runs on a cluster" in ran.stderr
        assert [job["name"] for job in cluster.jobs()] == ["one"]
    assert found(tmp_path, "one") == list(range(0, 2_000, 2))
