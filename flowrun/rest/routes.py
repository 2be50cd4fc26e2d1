"""The routes of the REST API: one table, from which the application, the OpenAPI document and `docs/reference/rest.md` are made.

A new route is a record here and a function that answers it.
"""

from __future__ import annotations

from functools import partial

from flowrun.core.recent_logs import LogLines
from flowrun.errors import ClusterError, StateError
from flowrun.rest import answers
from flowrun.rest.compilation import Purpose, compile_elsewhere
from flowrun.rest.metric_names import METRICS_MEDIA_TYPE
from flowrun.rest.refusals import Refused
from flowrun.rest.route import TEXT_BODY_BYTES, Call, Parameter, Route
from flowrun.rest.texts import Preview, PreviewRequest, SubmitRequest, Submitted, TextRequest, Validation
from flowrun.runners.job_document import JobDocument
from flowrun.runtime.job_details import JobDetails, VertexDetails
from flowrun.runtime.job_progress import JobProgress
from flowrun.runtime.lifecycle import JobState


def _health(call: Call) -> answers.Health:
    return answers.Health("ok")


def _ready(call: Call) -> answers.Health:
    states = [job.describe()["state"] for job in call.jobs.jobs()]
    if states and JobState.RUNNING.value not in states:
        raise Refused(503, "no job runs", f"they are {', '.join(sorted({str(s) for s in states}))}")
    return answers.Health("ok")


def _jobs(call: Call) -> answers.JobsAnswer:
    return answers.JobsAnswer(tuple(answers.job_answer(job.describe()) for job in call.jobs.jobs()))


def _job(call: Call) -> answers.JobAnswer:
    return answers.job_answer(call.job.describe())


def _overview(call: Call) -> answers.Overview:
    job = call.job
    return answers.Overview(answers.job_answer(job.describe()), job.details())


def _graph(call: Call) -> answers.Graph:
    details = call.job.details()
    vertices = (
        answers.GraphVertex(v.status.vertex_id, v.status, v.max_parallelism, v.slot_sharing_group, v.operators)
        for v in details.vertices
    )
    return answers.Graph(tuple(vertices), details.exchanges)


def _vertex(call: Call) -> VertexDetails:
    wanted = call.path["vertex"]
    for vertex in call.job.details().vertices:
        if vertex.status.vertex_id == wanted:
            return vertex
    raise Refused(404, f"the job has no vertex {wanted}", "GET …/graph lists those that it has")


def _progress(call: Call) -> JobProgress:
    return call.job.watch()


def _checkpoints(call: Call) -> answers.Checkpoints:
    details = call.job.details()
    return answers.Checkpoints(details.status.checkpoints, details.checkpoints)


def _exceptions(call: Call) -> answers.Exceptions:
    return answers.Exceptions(call.job.details().failures)


def _config(call: Call) -> answers.Configuration:
    job = call.job
    document = job.document() or JobDocument("", "", "")
    return answers.Configuration(job.details().settings, document.variables, document.overrides, document.withheld)


def _text(call: Call) -> JobDocument:
    document = call.job.document()
    if document is None:
        raise Refused(404, "the text of the job is not known here")
    return document


def _why(call: Call) -> answers.Findings:
    from flowrun.runners.why.finding import SEVERITIES
    from flowrun.runners.why.rules import findings
    from flowrun.runners.why.summary import summary

    details = call.job.details()
    found = findings(details)
    folder = call.job.describe().get("folder") if details.status.state.is_terminal else None
    if folder is not None:
        from flowrun.runners.why.unfinished_upgrade import unfinished_upgrade
        from flowrun.state.storage.state_path import resolve

        more = unfinished_upgrade(resolve(str(folder)))
        found = tuple(sorted((*more, *found), key=lambda f: SEVERITIES.index(f.severity)))
    return answers.Findings(summary(details, found), found)


def _logs(call: Call) -> LogLines:
    return call.job.logs(call.query["after"])


def _metrics(call: Call) -> bytes:
    from flowrun.rest.metrics import ListedJob, exposition

    found: list[JobDetails | ListedJob] = []
    for job in call.jobs.jobs():
        try:
            details = job.details(within_ms=_SCRAPED_JOB_MS)
        except (ClusterError, StateError):  # it has not begun, or its process is being replaced, or hangs
            about = job.describe()
            found.append(ListedJob(str(about["job_id"]), str(about["name"]), str(about["state"])))
            continue
        status = details.status
        over = ListedJob(status.job_id, status.name, status.state.value) if status.state.is_terminal else None
        found.append(over or details)
    return exposition(found)


def _openapi(call: Call) -> object:
    from flowrun.rest.openapi import openapi_document

    return openapi_document(ROUTES)


def _place(call: Call) -> answers.OrderPlaced:
    try:
        order = call.body_as(answers.OrderRequest).order()
    except ValueError as error:
        raise Refused(400, str(error)) from None
    return answers.OrderPlaced(call.job.place(order))


def _sample(call: Call) -> answers.OrderPlaced:
    return answers.OrderPlaced(call.job.place(call.body_as(answers.SampleRequest).order()))


def _order(call: Call) -> answers.OrderAnswer:
    job, number = call.job, call.path["order"]
    answer = job.answer(number)
    if answer is None:
        raise Refused(404, f"there is no order {number}")
    if answer["state"] != "pending":
        call.when_sent = partial(job.delivered, number)
    return answers.order_answer(answer)


def _validate(call: Call) -> Validation:
    found = compile_elsewhere(call.body_as(TextRequest), Purpose.VALIDATE).preview
    return Validation(found.valid, found.problems, found.delivery)


def _preview(call: Call) -> Preview:
    return compile_elsewhere(call.body_as(PreviewRequest), Purpose.PREVIEW).preview


def _submit(call: Call) -> Submitted:
    call.jobs.check_takes_jobs()
    found = compile_elsewhere(call.body_as(SubmitRequest), Purpose.SUBMIT)
    if found.failure is not None:
        raise Refused(422, found.failure.error, found.failure.hint)
    if found.submission is None:
        first = found.preview.problems[0]
        raise Refused(422, first.message, first.hint, problems=found.preview.problems)
    return Submitted(call.jobs.submit(found.submission))


_SCRAPED_JOB_MS = 2_000
"""How long a job may take to tell its metrics: Prometheus waits ten seconds for those of all jobs."""
_JOB = "/v1/jobs/{job_id}"
_OF_A_JOB = (404, 503)
_SHARED_MS = 500
"""Pages ask for these each second."""

ROUTES: tuple[Route, ...] = (
    Route("GET", "/healthz", "Whether the process answers.", _health, answers.Health, is_open=True, is_instant=True),
    Route("GET", "/readyz", "Whether a job runs, or none is there.", _ready, answers.Health, fails=(503,), is_open=True),
    Route(
        "GET", "/metrics", "All jobs, and this process, as Prometheus scrapes them.", _metrics, bytes,
        shared_ms=_SHARED_MS, media_type=METRICS_MEDIA_TYPE,
    ),
    Route("GET", "/v1/openapi.json", "This document.", _openapi, dict),
    Route("GET", "/v1/jobs", "The jobs.", _jobs, answers.JobsAnswer, fails=(503,), shared_ms=_SHARED_MS),
    Route(
        "POST", "/v1/jobs", "Run another job, on a cluster.", _submit, Submitted,
        takes=SubmitRequest, status=201, fails=(409, 422, 503), body_bytes=TEXT_BODY_BYTES,
    ),
    Route(
        "POST", "/v1/validate", "Check the text of a pipeline; lists all problems.", _validate, Validation,
        takes=TextRequest, fails=(503,), body_bytes=TEXT_BODY_BYTES,
    ),
    Route(
        "POST", "/v1/preview", "What a text would become: promises, plan and job graph; rows of a sample.", _preview, Preview,
        takes=PreviewRequest, fails=(503,), body_bytes=TEXT_BODY_BYTES,
    ),
    Route("GET", _JOB, "A job in short.", _job, answers.JobAnswer, fails=_OF_A_JOB),
    Route(
        "GET", f"{_JOB}/overview", "All that a page which shows the job needs each second.", _overview, answers.Overview,
        fails=_OF_A_JOB, shared_ms=_SHARED_MS,
    ),
    Route(
        "GET", f"{_JOB}/graph", "The job graph, with the figures of each vertex.", _graph, answers.Graph,
        fails=_OF_A_JOB, shared_ms=_SHARED_MS,
    ),
    Route(
        "GET", f"{_JOB}/vertices/{{vertex}}", "A vertex with each of its subtasks: rows, watermarks, back pressure.",
        _vertex, VertexDetails, fails=_OF_A_JOB, shared_ms=_SHARED_MS,
    ),
    Route(
        "GET", f"{_JOB}/why", "Why nothing comes out, or slowly: findings, the worst first.", _why, answers.Findings,
        fails=_OF_A_JOB, shared_ms=_SHARED_MS,
    ),
    Route("GET", f"{_JOB}/progress", "How a job stands, or how it has ended.", _progress, JobProgress, fails=_OF_A_JOB),
    Route(
        "GET", f"{_JOB}/checkpoints", "Checkpoints and savepoints: sizes and durations, by vertex and operator.",
        _checkpoints, answers.Checkpoints, fails=_OF_A_JOB, shared_ms=_SHARED_MS,
    ),
    Route(
        "GET", f"{_JOB}/exceptions", "Failures with their causes, and what was restarted.", _exceptions, answers.Exceptions,
        fails=_OF_A_JOB, shared_ms=_SHARED_MS,
    ),
    Route("GET", f"{_JOB}/config", "Settings, variables and overrides.", _config, answers.Configuration, fails=_OF_A_JOB),
    Route("GET", f"{_JOB}/text", "The text of the pipeline.", _text, JobDocument, fails=_OF_A_JOB),
    Route(
        "GET", f"{_JOB}/logs", "The last lines of the log of the job's process.", _logs, LogLines, fails=_OF_A_JOB,
        query=(Parameter("after", "Only lines whose number is larger."),),
    ),
    Route(
        "POST", f"{_JOB}/orders", "Take a savepoint, stop, cancel or rescale a job.", _place, answers.OrderPlaced,
        takes=answers.OrderRequest, status=202, fails=(404, 409, 503),
    ),
    Route(
        "POST", f"{_JOB}/samples", "Keep the last rows of an exchange for a while.", _sample, answers.OrderPlaced,
        takes=answers.SampleRequest, status=202, fails=(404, 409, 503),
    ),
    Route("GET", f"{_JOB}/orders/{{order}}", "What became of an order.", _order, answers.OrderAnswer, fails=_OF_A_JOB),
)  # fmt: skip
"""In the order in which they are documented."""
