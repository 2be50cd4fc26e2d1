"""From a request that is meant for a route to the bytes of its answer, however it has come."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl, urlsplit

import msgspec

from flowrun.errors import FlowrunError
from flowrun.masking import knows_secrets, masked, masked_json
from flowrun.rest.bodies import body_of
from flowrun.rest.refusals import Refused, refused
from flowrun.rest.route import Call, Route
from flowrun.rest.routes import ROUTES
from flowrun.rest.served import ServedJobs
from flowrun.runners.rest_requests import RestReply


def answer_request(jobs: ServedJobs, method: str, path: str, body: bytes | None) -> RestReply:
    """What the REST API answers to a request that came by another way than HTTP, from somebody who may ask for all. It may block.

    Args:
        jobs: that are asked for.
        method: of HTTP.
        path: with the query, if there is one.
        body: JSON; None: there is none.
    """
    try:
        route, call = _call(jobs, method, path, body)
        reply = RestReply(route.status, encoded(route, call))
        call.when_sent()
    except (Refused, FlowrunError) as error:
        refusal = error if isinstance(error, Refused) else refused(error)
        return RestReply(refusal.status, failure_bytes(refusal))
    return reply


def _call(jobs: ServedJobs, method: str, path: str, body: bytes | None) -> tuple[Route, Call]:
    parts = urlsplit(path)
    for route in ROUTES:
        named = route.match(parts.path) if route.method == method else None
        if named is not None:
            call = Call(jobs, named, query_of(route, parse_qsl(parts.query, keep_blank_values=True)))
            if route.takes is not None:
                call.body = body_of(body or b"", route.takes)
            return route, call
    raise Refused(404, f"there is no {method} {parts.path}", "GET /v1/openapi.json lists what there is")


def query_of(route: Route, given: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The parameters of a request. Raises Refused: the route has no such parameter, or it is no number."""
    found = {p.name: p.default for p in route.query}
    for name, value in given:
        if name not in found:
            raise Refused(400, f"unknown parameter '{name}'", f"known are {', '.join(found)}" if found else None)
        if not (value.isascii() and value.isdecimal() and len(value) <= 15):
            raise Refused(400, f"the parameter '{name}' is a number")
        found[name] = int(value)
    return found


def encoded(route: Route, call: Call) -> bytes:
    """The bytes of an answer, without secrets."""
    answer = route.answer(call)
    if isinstance(answer, bytes):  # the route has masked it, part by part
        return answer
    if isinstance(answer, str):
        return masked(answer).encode()
    if not knows_secrets():
        return msgspec.json.encode(answer)
    return msgspec.json.encode(masked_json(msgspec.to_builtins(answer, str_keys=True)))


def failure_bytes(refusal: Refused) -> bytes:
    """The bytes of the answer to a request that cannot be carried out, without secrets."""
    return msgspec.json.encode(masked_json(msgspec.to_builtins(refusal.failure)))
