"""The routes of the REST API: one table, from which the application, the OpenAPI document and `docs/reference/rest.md` are made.

A new route is a record here and a function that answers it.
"""

from __future__ import annotations

from functools import partial

from flowrun.rest.answers import (
    Health,
    JobAnswer,
    JobsAnswer,
    OrderAnswer,
    OrderPlaced,
    OrderRequest,
    job_answer,
    order_answer,
)
from flowrun.rest.refusals import Refused
from flowrun.rest.route import Call, Route
from flowrun.runtime.lifecycle import JobState


def _health(call: Call) -> Health:
    return Health("ok")


def _ready(call: Call) -> Health:
    states = [job.describe()["state"] for job in call.jobs.jobs()]
    if states and JobState.RUNNING.value not in states:
        raise Refused(503, "no job runs", f"they are {', '.join(sorted({str(s) for s in states}))}")
    return Health("ok")


def _jobs(call: Call) -> JobsAnswer:
    return JobsAnswer(tuple(job_answer(job.describe()) for job in call.jobs.jobs()))


def _job(call: Call) -> JobAnswer:
    return job_answer(call.job.describe())


def _place(call: Call) -> OrderPlaced:
    try:
        order = call.body_as(OrderRequest).order()
    except ValueError as error:
        raise Refused(400, str(error)) from None
    return OrderPlaced(call.job.place(order))


def _order(call: Call) -> OrderAnswer:
    job, number = call.job, call.path["order"]
    answer = job.answer(number)
    if answer is None:
        raise Refused(404, f"there is no order {number}")
    if answer["state"] != "pending":
        call.when_sent = partial(job.delivered, number)
    return order_answer(answer)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/healthz", "Whether the process answers.", _health, Health, is_open=True),
    Route("GET", "/readyz", "Whether a job runs, or none is there.", _ready, Health, fails=(503,), is_open=True),
    Route("GET", "/v1/jobs", "The jobs.", _jobs, JobsAnswer),
    Route("GET", "/v1/jobs/{job_id}", "A job.", _job, JobAnswer, fails=(404, 503)),
    Route(
        "POST", "/v1/jobs/{job_id}/orders", "Take a savepoint, stop, cancel or rescale a job.", _place, OrderPlaced,
        takes=OrderRequest, status=202, fails=(404, 409, 503),
    ),
    Route(
        "GET", "/v1/jobs/{job_id}/orders/{order}", "What became of an order.", _order, OrderAnswer, fails=(404, 503)
    ),
)  # fmt: skip
"""In the order in which they are documented."""
