"""Asks a REST API for JSON, however requests travel to it; see `flowrun.rest`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from flowrun.core.record import record
from flowrun.errors import ClusterError, PipelineError, StateError

if TYPE_CHECKING:
    from flowrun.runners.control import Json


@record
class RestReply:
    """What a REST API answers.

    Attributes:
        status: of HTTP.
        data: JSON, or what the route says.
    """

    status: int
    data: bytes


class RestRequests(Protocol):
    """Asks a REST API. Thread-safe; blocks for a round trip."""

    def ask(self, method: str, path: str, body: bytes | None = None) -> RestReply:
        """What is answered to a request.

        Raises:
            ClusterError: nobody answers.
        """
        ...


def answered(requests: RestRequests, method: str, path: str, body: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """The JSON object that a REST API answers with.

    Raises:
        StateError: a job refuses, and why.
        PipelineError: the text of a pipeline was refused.
        ClusterError: nobody answers, or the request is refused.
    """
    return answer_of(requests.ask(method, path, None if body is None else json.dumps(body).encode()))


def answer_of(reply: RestReply) -> dict[str, Json]:
    """The JSON object of a reply. Raises as `answered`."""
    try:
        found = json.loads(reply.data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ClusterError("what answers there is no REST API of flowrun", hint="`flowrun ui` tells its address")
    if reply.status < HTTPStatus.MULTIPLE_CHOICES:
        return found
    error, hint = str(found.get("error")), found.get("hint")
    hint = None if hint is None else str(hint)
    match reply.status:
        case HTTPStatus.CONFLICT:
            raise StateError(error, hint=hint)
        case HTTPStatus.UNPROCESSABLE_ENTITY:
            raise PipelineError.of(error, hint)
        case HTTPStatus.SERVICE_UNAVAILABLE | HTTPStatus.NOT_FOUND:
            raise ClusterError(error, hint=hint)
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            hint = "--token-file FILE names the file that its process was given; `flowrun ui` tells an address with the token"
    raise ClusterError(f"the request is refused: {error} ({reply.status})", hint=hint)
