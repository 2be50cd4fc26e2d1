"""What a route is: one record says its path, what it takes and gives, and the function that answers it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeVar

from flowrun.core.record import record
from flowrun.rest.refusals import Refused
from flowrun.rest.served import ServedJob, ServedJobs

Body = TypeVar("Body")

_IN_PATH = re.compile(r"\{(\w+)\}")
SMALL_BODY_BYTES = 16_384
TEXT_BODY_BYTES = 1 << 20
"""Of a body that has the text of a pipeline."""


@record(eq=False, frozen=False)
class Call:
    """One request, after all that can be checked without the job was checked.

    Attributes:
        jobs: that are served.
        path: name in the path of the route → text.
        query: parameter → its value.
        body: an instance of what the route takes; None: it takes nothing.
        when_sent: is called as soon as the answer has been sent.
    """

    jobs: ServedJobs
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, int] = field(default_factory=dict)
    body: object = None
    when_sent: Callable[[], None] = lambda: None

    @property
    def job(self) -> ServedJob:
        """The job that the path names. Raises Refused: there is none of that id."""
        job_id = self.path["job_id"]
        found = self.jobs.job(job_id)
        if found is None:
            raise Refused(404, f"there is no job {job_id}", "GET /v1/jobs lists those that there are")
        return found

    def body_as(self, kind: type[Body]) -> Body:
        """The body, which the route says to be of that kind."""
        assert isinstance(self.body, kind)
        return self.body


@record
class Parameter:
    """A number in the query of a request.

    Attributes:
        name: of it.
        text: what it says.
        default: if it is not given.
    """

    name: str
    text: str
    default: int = 0


@record(eq=False)
class Route:
    """One path and method.

    Attributes:
        method: of HTTP.
        path: with `{name}` for what varies; `{job_id}` is a job.
        text: what the request does, for people.
        answer: makes the answer; raises Refused, or a FlowrunError, which is answered as `refused` says. It may block.
        gives: the type of the answer.
        takes: the type of the body; None: there is none.
        status: of HTTP, if nothing fails.
        fails: the statuses of failures beyond those that every request has.
        query: parameters.
        body_bytes: the most that a body has.
        shared_ms: how old an answer may be: all who ask within that time get the same bytes. 0: each has one of its own.
        media_type: of the answer; what is not JSON is answered as text.
        is_open: whether it is answered without a token, as it tells nothing of jobs.
        is_instant: whether the answer waits for nothing, and so for no thread either.
    """

    method: str
    path: str
    text: str
    answer: Callable[[Call], object]
    gives: Any
    takes: type | None = None
    status: int = 200
    fails: tuple[int, ...] = ()
    query: tuple[Parameter, ...] = ()
    body_bytes: int = SMALL_BODY_BYTES
    shared_ms: int = 0
    media_type: str = "application/json"
    is_open: bool = False
    is_instant: bool = False

    def match(self, path: str) -> dict[str, str] | None:
        """What varies in a path of this route, by name; None: it is another's.

        >>> Route("GET", "/v1/jobs/{job_id}", "", print, str).match("/v1/jobs/5f")
        {'job_id': '5f'}
        """
        pattern = _IN_PATH.sub(r"(?P<\1>[^/]+)", self.path)
        found = re.fullmatch(pattern, path)
        return None if found is None else found.groupdict()

    @property
    def names(self) -> tuple[str, ...]:
        """What varies in the path."""
        return tuple(_IN_PATH.findall(self.path))
