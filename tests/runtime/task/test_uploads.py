"""Uploads of a task run one after the other on shared threads, and end with it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from flowrun.runtime.task.uploads import TaskUploads


def test_jobs_keep_their_order_and_never_overlap() -> None:
    done: list[int] = []
    running = threading.Lock()
    idle = threading.Event()

    def job(number: int) -> None:
        assert running.acquire(blocking=False)
        done.append(number)
        running.release()

    with ThreadPoolExecutor(4) as pool:
        uploads = TaskUploads(pool, idle.set, lambda error: done.append(-1))
        for number in range(200):
            assert uploads.submit(lambda number=number: job(number))  # type: ignore[misc]
        while not uploads.is_idle:
            idle.wait(10)
        assert done == list(range(200))


def test_without_threads_jobs_run_where_they_are_submitted() -> None:
    done: list[int] = []
    uploads = TaskUploads(None, lambda: done.append(0), lambda error: None)
    uploads.submit(lambda: done.append(1))
    assert done == [1, 0]
    assert uploads.is_idle


def test_a_job_that_raises_is_told_of_and_the_next_one_runs() -> None:
    errors: list[Exception] = []
    done: list[int] = []
    uploads = TaskUploads(None, lambda: None, errors.append)
    error = ValueError("no")

    def failing() -> None:
        raise error

    uploads.submit(failing)
    uploads.submit(lambda: done.append(1))
    assert (errors, done) == ([error], [1])


def test_closing_waits_for_the_job_under_way_and_drops_the_rest() -> None:
    entered, may_go = threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> None:
        entered.set()
        assert may_go.wait(10)
        done.append("slow")

    with ThreadPoolExecutor(1) as pool:
        uploads = TaskUploads(pool, lambda: None, lambda error: None)
        uploads.submit(slow)
        uploads.submit(lambda: done.append("never"))
        assert entered.wait(10)
        closer = threading.Thread(target=lambda: (uploads.close(), done.append("closed")))
        closer.start()
        while not uploads.is_closed:
            pass
        may_go.set()
        closer.join(10)
        assert not uploads.submit(lambda: done.append("too late"))
        uploads.close()
    assert done == ["slow", "closed"]


def test_closing_does_not_wait_for_a_thread_that_others_use() -> None:
    entered, may_go = threading.Event(), threading.Event()

    def other() -> None:
        entered.set()
        assert may_go.wait(10)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(other)
        assert entered.wait(10)
        done: list[int] = []
        uploads = TaskUploads(pool, lambda: None, lambda error: None)
        uploads.submit(lambda: done.append(1))
        uploads.close()
        may_go.set()
    assert done == []
