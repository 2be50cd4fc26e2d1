"""Runs committers that take long on a thread beside the job master's, in order. Used by the job master's thread only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from flowrun.api.sink import Committable, Committer
from flowrun.core.record import record
from flowrun.runtime.jobmaster.io_thread import IoThread


@record(frozen=False, eq=False)
class _Call:
    """One call of a committer: what it commits, and how it went."""

    ids: frozenset[str]
    done: Callable[[], None]
    describe: Callable[[], Exception]
    returned: threading.Event
    error: Exception | None = None


class LongCommits:
    """The calls of committers that are under way.

    Args:
        io: the thread that they run on.
        failed: is told of a call that failed, unless somebody waits for it, who then sees that it is still pending.
    """

    def __init__(self, io: IoThread, failed: Callable[[Exception], None]) -> None:
        self._io = io
        self._failed = failed
        self._calls: list[_Call] = []
        self._quiet: Callable[[Exception | None], None] | None = None
        self._missed: Exception | None = None
        """The first error since somebody waits with `when_quiet`."""

    def is_under_way(self, commit_id: str) -> bool:
        """Whether a call has it that has not returned, as far as this thread knows."""
        return any(commit_id in call.ids for call in self._calls)

    def submit(
        self,
        committer: Committer,
        committables: Sequence[Committable],
        done: Callable[[], None],
        describe: Callable[[], Exception],
    ) -> None:
        """Commit, then run `done` on the job master's thread.

        Args:
            committer: is used by the I/O thread until the call has returned.
            committables: what it commits.
            done: it has.
            describe: makes the error that is told if it fails; what the committer raised becomes its cause.
        """
        call = _Call(frozenset(c.commit_id for c in committables), done, describe, threading.Event())
        self._calls.append(call)

        def commit() -> None:
            try:
                committer.commit(committables)
            except Exception as error:
                call.error = error
            finally:
                call.returned.set()

        def returned() -> None:
            error = self._settle(call)
            if error is not None:
                self._failed(error)

        self._io.submit(commit, lambda _: returned(), lambda _: returned())

    def when_quiet(self, then: Callable[[Exception | None], None]) -> None:
        """Run `then` on the job master's thread once nothing is under way, now or in a later mail, with the first error until then."""
        if self._calls:
            self._quiet, self._missed = then, None
        else:
            then(None)

    def wait(self) -> None:
        """Block until nothing is under way. What waited for that with `when_quiet` is forgotten: something else happens now."""
        self._quiet = None
        while self._calls:
            call = self._calls[0]
            call.returned.wait()
            self._settle(call)

    def close(self) -> None:
        """End the thread, once nothing is under way. Idempotent."""
        self._io.close()

    def _settle(self, call: _Call) -> Exception | None:
        """The call has returned: take note, once; gives the error if it failed and nobody waits who is told of it."""
        if call not in self._calls:
            return None
        self._calls.remove(call)
        error = None
        if call.error is None:
            call.done()
        else:
            error = call.describe()
            error.__cause__ = call.error
        if self._quiet is None:
            return error
        self._missed = self._missed or error
        if not self._calls:
            then, self._quiet = self._quiet, None
            then(self._missed)
        return None
