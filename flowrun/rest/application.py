"""The ASGI application of the REST API: checks each request, has its route answer it in a thread, and makes JSON of the answer.

Starlette leads a request to its path. What a request may do is decided before its body is read, and the same for every path.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from starlette.background import BackgroundTask
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from flowrun.core.record import record
from flowrun.errors import FlowrunError
from flowrun.rest.answering import encoded, failure_bytes, query_of
from flowrun.rest.bodies import body_of, read_body
from flowrun.rest.page_files import PageFile, page_files
from flowrun.rest.refusals import Refused, refused
from flowrun.rest.route import Call, Route
from flowrun.rest.routes import ROUTES
from flowrun.rest.security import CONNECTION, HEADERS, Shown, check_head, check_place, check_token
from flowrun.rest.served import ServedJobs

_THREADS = 64
"""Requests that are answered at one time, as many as connections may be open: what waits for a process or a compiler holds up no other."""
_MOST_SHARED = 256

_log = logging.getLogger(__name__)


@record(eq=False)
class _Shared:
    """An answer that all who ask for it get until it is too old."""

    until: float
    answer: asyncio.Future[bytes]


class Application:
    """An ASGI 3 application.

    Args:
        jobs: that are served.
        routes: of the API.
    """

    def __init__(self, jobs: ServedJobs, routes: Sequence[Route] = ROUTES) -> None:
        self._jobs = jobs
        self._threads = ThreadPoolExecutor(_THREADS, "flowrun-rest-request")
        self._shared: dict[str, _Shared] = {}
        files = page_files()
        self._open_paths = {f.path for f in files} | {r.path for r in routes if r.is_open}
        by_path: dict[str, dict[str, Route]] = defaultdict(dict)
        for route in routes:
            by_path[route.path][route.method] = route
        paths = [Path(path, partial(self._answer, methods), methods=list(methods)) for path, methods in by_path.items()]
        paths += [Path(f.path, partial(_answer_file, f), methods=["GET"]) for f in files]
        self._router = Router(paths, redirect_slashes=False)

    def close(self) -> None:
        """Wait for the threads."""
        self._threads.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI 3."""
        shown: Shown = scope["state"][CONNECTION]
        scope["app"] = self  # Starlette raises what it refuses then
        headers = Headers(scope=scope)
        try:
            check_head(scope)
            check_place(headers, shown.door)
            if scope["path"] not in self._open_paths:
                check_token(headers, shown)
            await self._router(scope, receive, send)
            return
        except ClientDisconnect:  # in the middle of a body: there is nobody to be answered
            return
        except Refused as refusal:
            response = _failed(refusal)
        except FlowrunError as error:
            response = _failed(refused(error))
        except HTTPException as error:
            response = _failed(_of_starlette(error, scope))
        except Exception:
            _log.exception("a request of the REST API failed: %s %s", scope["method"], scope["path"])
            response = _failed(Refused(500, "flowrun itself failed at this request", "the log of the job says more"))
        shown.begin_answer()
        await response(scope, receive, send)

    async def _answer(self, methods: Mapping[str, Route], request: Request) -> Response:
        shown: Shown = request.scope["state"][CONNECTION]
        route = methods["GET" if request.method == "HEAD" else request.method]
        call = Call(self._jobs, request.path_params, query_of(route, request.query_params.multi_items()))
        if route.takes is not None:
            call.body = body_of(await read_body(request, route.body_bytes), route.takes)
        shown.begin_answer()
        if route.is_instant:
            data = encoded(route, call)
        else:
            data = await (self._share(route, call, str(request.url)) if route.shared_ms else self._make(route, call))
        if route.method != "GET":  # who asks from now on sees what has changed
            self._shared.clear()
        return Response(data, route.status, HEADERS, route.media_type, BackgroundTask(_sent, call))

    async def _share(self, route: Route, call: Call, key: str) -> bytes:
        """The answer that is young enough, or is being made, however long that takes; else a new one."""
        loop = asyncio.get_running_loop()
        shared = self._shared.get(key)
        if shared is None or (shared.answer.done() and loop.time() > shared.until):
            made = asyncio.ensure_future(self._make(route, call))
            made.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever asked may have left
            if len(self._shared) >= _MOST_SHARED:
                self._shared.clear()
            shared = self._shared[key] = _Shared(loop.time() + route.shared_ms / 1000, made)
        return await asyncio.shield(shared.answer)

    async def _make(self, route: Route, call: Call) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._threads, encoded, route, call)


async def _sent(call: Call) -> None:
    """The answer has been sent. No thread is asked to say so: what is told blocks nobody."""
    call.when_sent()


async def _answer_file(file: PageFile, request: Request) -> Response:
    request.scope["state"][CONNECTION].begin_answer()
    return Response(file.content, 200, HEADERS, file.media_type)


def _failed(refusal: Refused) -> Response:
    body = failure_bytes(refusal)
    return Response(body, refusal.status, {**HEADERS, **refusal.headers, "Connection": "close"}, "application/json")


def _of_starlette(error: HTTPException, scope: Scope) -> Refused:
    headers = dict(error.headers or {})
    if error.status_code == 405:
        return Refused(405, f"{scope['path']} takes {headers.get('Allow', 'no such method')} only", headers=headers)
    if error.status_code == 404:
        return Refused(404, f"there is no {scope['path']}", "GET /v1/openapi.json lists what there is")
    return Refused(error.status_code, error.detail, headers=headers)
