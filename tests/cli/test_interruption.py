"""What signals do to a job that takes checkpoints, and to one that takes none."""

from __future__ import annotations

import signal

import pytest

from flowrun.cli.arguments import StopOptions
from flowrun.cli.interruption import SLOTS_COME_BACK_MS, Interruption, stop_on_signals
from flowrun.core.clock import ManualClock
from flowrun.errors import StateError
from flowrun.runtime.lifecycle import JobState
from tests.rest.control_fakes import FakeJob

LAST_CHECKPOINT = ("snapshot", None, False, True, False)


def interrupted(job: FakeJob, *, checkpoints: bool = True, quiet: bool = False) -> Interruption:
    interruption = Interruption(quiet, checkpoints=checkpoints)
    interruption.attach(job)
    interruption.handle(signal.SIGINT, None)
    return interruption


def test_the_first_signal_asks_for_a_last_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    interruption = interrupted(job := FakeJob())
    interruption.check()
    job.tickets[0].succeed("/state/chk-8")
    interruption.check()
    assert job.asked == [LAST_CHECKPOINT]
    assert "stopping: with a last checkpoint; press Ctrl-C again to cancel" in capsys.readouterr().err


def test_the_second_signal_cancels() -> None:
    interrupted(job := FakeJob()).handle(signal.SIGTERM, None)
    assert job.asked == [LAST_CHECKPOINT, ("cancel",)]


def test_a_terminal_that_is_closed_stops_the_job_once() -> None:
    interruption = Interruption(quiet=True, checkpoints=True)
    interruption.attach(job := FakeJob())
    for _ in range(2):
        interruption.handle(signal.SIGHUP, None)
    assert job.asked == [LAST_CHECKPOINT]


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_closed_terminal_counts_unless_the_job_is_to_outlive_it(before: signal.Handlers) -> None:
    own = signal.signal(signal.SIGHUP, before)
    try:
        with stop_on_signals(True, checkpoints=True) as interruption:
            interruption.attach(job := FakeJob())
            signal.raise_signal(signal.SIGHUP) if before is signal.SIG_IGN else interruption.handle(signal.SIGHUP, None)
            handled = signal.getsignal(signal.SIGHUP)
        assert (handled is signal.SIG_IGN) == (before is signal.SIG_IGN)
        assert signal.getsignal(signal.SIGHUP) is before
        assert job.asked == ([] if before is signal.SIG_IGN else [LAST_CHECKPOINT])
    finally:
        signal.signal(signal.SIGHUP, own)


def test_without_checkpoints_the_job_ends_after_what_was_read() -> None:
    interrupted(job := FakeJob(), checkpoints=False)
    assert job.asked == [("stop", False)]


def test_a_signal_before_the_job_is_there_counts() -> None:
    interruption = Interruption(quiet=True, checkpoints=True)
    interruption.handle(signal.SIGINT, None)
    interruption.attach(job := FakeJob())
    assert job.asked == [LAST_CHECKPOINT]


def test_two_signals_before_the_job_is_there_cancel_it() -> None:
    interruption = Interruption(quiet=True, checkpoints=True)
    for _ in range(2):
        interruption.handle(signal.SIGINT, None)
    interruption.attach(job := FakeJob())
    assert job.asked == [("cancel",)]


def test_without_its_last_checkpoint_the_job_is_cancelled_and_the_reason_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    interruption = interrupted(job := FakeJob(), quiet=True)
    job.tickets[0].fail("cannot write '/state': the disk is full", "free some space")
    interruption.check()
    interruption.check()
    assert job.asked == [LAST_CHECKPOINT, ("cancel",)], "what came after the checkpoint before must not be committed"
    said = capsys.readouterr().err
    assert said == "there is no last checkpoint: cannot write '/state': the disk is full\n  hint: free some space\n"


def test_a_job_that_fails_again_instead_of_stopping_is_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    interruption = interrupted(job := FakeJob(), quiet=True)
    interruption.check()
    job.restarts += 1
    interruption.check()
    interruption.check()
    assert job.asked == [LAST_CHECKPOINT, ("cancel",)], "it would be restarted again and again"
    assert "there is no last checkpoint: the job failed while it was to stop" in capsys.readouterr().err


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_job_that_waits_for_its_first_slots_is_cancelled(
    checkpoints: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    job = FakeJob()
    interruption = interrupted(job, checkpoints=checkpoints, quiet=True)
    job.state, job.waits_for = JobState.CREATED, "slots: needs 2 slots, 0 of 0 are free"
    interruption.check()
    interruption.check()
    assert job.asked[1:] == [("cancel",)], "nothing was read: there is nothing of which a checkpoint could be taken"
    assert "the job has not begun, as it waits for slots: needs 2 slots, 0 of 0 are free" in capsys.readouterr().err


def test_a_job_that_has_lost_its_slots_is_cancelled_if_they_do_not_come_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    interruption = Interruption(True, checkpoints=True, clock=clock)
    interruption.attach(job := FakeJob())
    interruption.handle(signal.SIGTERM, None)

    def check(state: JobState, waits_for: str | None, later_ms: int) -> None:
        job.state, job.waits_for = state, waits_for
        clock.advance(later_ms)
        interruption.check()

    slots = "slots: needs 2 slots, 1 of 1 are free"
    check(JobState.RESTARTING, slots, 0)
    check(JobState.RESTARTING, slots, SLOTS_COME_BACK_MS - 1)
    check(JobState.RUNNING, None, 1)
    check(JobState.RESTARTING, "rescaling from parallelism 1 to 2", 1)
    check(JobState.RESTARTING, "rescaling from parallelism 1 to 2", 10 * SLOTS_COME_BACK_MS)
    check(JobState.RESTARTING, slots, 1)
    assert job.asked == [LAST_CHECKPOINT]
    check(JobState.RESTARTING, slots, SLOTS_COME_BACK_MS)
    check(JobState.RESTARTING, slots, SLOTS_COME_BACK_MS)
    assert job.asked == [LAST_CHECKPOINT, ("cancel",)]
    assert capsys.readouterr().err == f"there is no last checkpoint: the job waits for {slots}: the one before counts\n"


def test_a_job_that_came_to_its_own_end_meanwhile_needs_no_last_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    interruption = interrupted(job := FakeJob(), quiet=True)
    job.state = JobState.FINISHED
    job.tickets[0].fail("the job has ended (finished)")
    interruption.check()
    assert job.asked == [LAST_CHECKPOINT]
    assert capsys.readouterr().err == ""


def test_a_job_that_refuses_is_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    job = FakeJob()
    job.refusal = StateError("it is not running yet")
    interrupted(job)
    assert job.asked == [LAST_CHECKPOINT, ("cancel",)]
    assert "there is no last checkpoint: it is not running yet" in capsys.readouterr().err


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stop_on_signals(quiet=True, checkpoints=True) as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.requested
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_run_may_end_with_a_savepoint_whether_it_takes_checkpoints_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    for checkpoints in (True, False):
        interruption = Interruption(False, checkpoints=checkpoints, stop=StopOptions("/keep"))
        interruption.attach(job := FakeJob())
        interruption.handle(signal.SIGTERM, None)
        assert job.asked == [("snapshot", "/keep", True, True, False)]
        job.tickets[0].succeed("/keep/savepoint-1")
        interruption.check()
    assert "stopping: with a savepoint" in capsys.readouterr().err


def test_a_last_checkpoint_that_takes_too_long_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    interruption = Interruption(True, checkpoints=True, stop=StopOptions(within_ms=25_000), clock=clock)
    interruption.attach(job := FakeJob())
    interruption.handle(signal.SIGTERM, None)
    clock.advance(24_999)
    interruption.check()
    assert job.asked == [LAST_CHECKPOINT]
    clock.advance(1)
    interruption.check()
    assert job.asked == [LAST_CHECKPOINT, ("cancel",)]
    assert "there is no last checkpoint within 25s: the one before counts" in capsys.readouterr().err
    interruption.check()
    assert job.asked == [LAST_CHECKPOINT, ("cancel",)]
