"""A job as a context manager: it does not outlive its block."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from flowrun.runtime.job_status import JobResult


class JobBlock:
    """A job that ends with the block in which it is used."""

    def cancel(self) -> None:
        """End the job as soon as possible, without results."""
        raise NotImplementedError

    def wait(self, timeout_ms: float | None = None) -> JobResult | None:
        """The result once the job is over; None if it still runs after `timeout_ms`. Raises JobFailedError."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel if it still runs, and wait for the end; a failure that is already on its way out is not raised again."""
        self.cancel()
        if kind is None:
            self.wait()
            return
        try:
            self.wait()
        except Exception as ending:
            if error is not None and ending is not error:
                error.add_note(f"the job ended with: {ending}")
