"""Compiles the text of a pipeline in a process of its own: what a text makes a compiler do, holds up no job and no dispatcher.

`python -m flowrun.rest.compilation` reads a request as JSON from standard input, and writes a `Compilation` to standard output.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import nullcontext
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from flowrun.core.typed_values import learn_kind
from flowrun.masking import learn_secret, masked, masked_json
from flowrun.rest.refusals import Problem, Refused, problem_of, refused
from flowrun.rest.sampled_texts import sampled_rows
from flowrun.rest.texts import (
    Compilation,
    Delivery,
    PlannedVertex,
    Preview,
    PreviewRequest,
    SubmitRequest,
    TextRequest,
)

if TYPE_CHECKING:
    from flowrun.operators.function_scope import FunctionScopes
    from flowrun.runners.compile import CompiledPipeline
    from flowrun.runners.session.messages import JobSubmission

MOST_AT_ONCE = 2
_WAIT_S = 20.0
COMPILE_S = 30.0

_places = threading.BoundedSemaphore(MOST_AT_ONCE)


class Purpose(Enum):
    """What a text is compiled for: only a preview does without the files that its sources read, only what is submitted becomes a job."""

    VALIDATE = "validate"
    PREVIEW = "preview"
    SUBMIT = "submit"


_REQUESTS = {Purpose.VALIDATE: TextRequest, Purpose.PREVIEW: PreviewRequest, Purpose.SUBMIT: SubmitRequest}


def compile_elsewhere(request: TextRequest, purpose: Purpose) -> Compilation:
    """What a text becomes. Blocks until another process has compiled it.

    Args:
        request: the text.
        purpose: what for.

    Raises:
        Refused: too many texts are being compiled, or this one takes too long.
    """
    if not _places.acquire(timeout=_WAIT_S):
        raise Refused(503, f"{MOST_AT_ONCE} other texts are being compiled", "ask again in a moment")
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, purpose.value],
            input=msgspec.json.encode(request),
            capture_output=True,
            timeout=COMPILE_S,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired:
        raise Refused(
            503, f"the text is not compiled after {COMPILE_S:.0f} s", "ask what its catalogs wait for"
        ) from None
    finally:
        _places.release()
    try:
        return msgspec.json.decode(done.stdout, type=learn_kind(Compilation))
    except msgspec.DecodeError:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Refused(500, "flowrun itself failed at this text", masked(said[-1]) if said else None) from None


def compiled_here(request: TextRequest, purpose: Purpose) -> Compilation:
    """What a text becomes, compiled in this process, which runs no job but that of a sample."""
    from flowrun.connectors.filesystem.table_path import allowing_missing
    from flowrun.errors import FlowrunError, PipelineError
    from flowrun.operators.function_scope import functions_beside

    for value in request.secrets.values():
        learn_secret(value)
    try:
        if isinstance(request, SubmitRequest) and request.working_directory is not None:
            _go_to(request.working_directory)
        wants_rows = isinstance(request, PreviewRequest) and request.rows > 0
        with tempfile.TemporaryDirectory() as nothing:
            functions = functions_beside(Path(nothing))
            with allowing_missing() if purpose is Purpose.PREVIEW and not wants_rows else nullcontext():
                compiled = _compiled(request, functions)
                preview = _preview(compiled)
            submission = _submission(compiled, cast(SubmitRequest, request)) if purpose is Purpose.SUBMIT else None
            sampled = sampled_rows(cast(PreviewRequest, request), compiled, functions) if wants_rows else None
    except PipelineError as error:
        return Compilation(Preview(False, tuple(map(problem_of, error.diagnostics))))
    except FlowrunError as error:
        return Compilation(Preview(False, (problem_of_error(error),)), failure=refused(error).failure)
    return Compilation(replace(preview, sampled=sampled), submission)


def _go_to(folder: str) -> None:
    """Have relative paths of tables start in a folder, for as long as this process lives. Raises PipelineError: it is not there."""
    from flowrun.errors import PipelineError

    try:
        os.chdir(folder)
    except OSError as error:
        raise PipelineError.of(
            f"the cluster cannot go to '{folder}', where relative paths of the pipeline start: {error.strerror}",
            "all machines of a cluster see what pipelines read and write under the same paths",
        ) from None


def problem_of_error(error: Exception) -> Problem:
    """An error that has no place in the text, as a problem of it."""
    return Problem(getattr(error, "message", str(error)), hint=getattr(error, "hint", None))


def _compiled(request: TextRequest, functions: FunctionScopes) -> CompiledPipeline:
    from flowrun.frontend.source_text import SourceText
    from flowrun.runners.compile import compile_source

    rows = None
    if isinstance(request, SubmitRequest) and request.from_savepoint is not None:
        from flowrun.state.storage.locate import locate

        kept = locate(request.from_savepoint).metadata.pipeline
        rows = {} if kept is None else kept.table_rows
    variables = {**request.variables, **request.secrets}
    file, folder, project = request.file, Path.cwd(), None
    if isinstance(request, SubmitRequest):
        project = request.project
        if request.directory is not None:
            folder = Path(request.directory).absolute()
            file = str(folder / file)
    source = SourceText(file, request.text)
    return compile_source(source, folder, variables, request.overrides, functions, rows, project)


def _submission(compiled: CompiledPipeline, request: SubmitRequest) -> JobSubmission:
    from flowrun.errors import PipelineError
    from flowrun.runners.pipeline_text import withheld_values
    from flowrun.runners.session.client import job_submission
    from flowrun.runners.workers import check_runs_elsewhere
    from flowrun.runtime.cluster_messages import JobText
    from flowrun.state.storage.locate import locate

    if compiled.is_batch or not compiled.runs:
        what = "it runs on Spark, as `flowrun run` does it" if compiled.is_batch else "it writes to no sink"
        raise PipelineError.of(f"the cluster cannot run this text: {what}")
    check_runs_elsewhere(compiled.job_graph)
    variables = {**request.variables, **request.secrets}
    restored = None
    if request.from_savepoint is not None:
        restored = locate(request.from_savepoint, job_name=compiled.job_graph.name).folder
    submission = job_submission(
        compiled.job_graph,
        JobText(compiled.text, withheld_values(compiled.text, variables, request.overrides)),
        restore_from=restored,
        allow_non_restored=request.allow_non_restored_state,
        committed_after=request.committed_after,
    )
    return replace(submission, upgrade=request.upgrade)


def _preview(compiled: CompiledPipeline) -> Preview:
    from flowrun.runtime.jobmaster.details import describe_exchanges, describe_operators

    return Preview(
        valid=True,
        problems=tuple(map(problem_of, compiled.warnings)),
        delivery=tuple(Delivery(g.sink, g.word, tuple(g.reasons)) for g in compiled.guarantees),
        name=compiled.plan.name,
        mode=compiled.plan.settings.mode,
        plan=compiled.render("plan", "text"),
        vertices=tuple(
            PlannedVertex(v.vertex_id, v.name, v.parallelism, v.max_parallelism, tuple(describe_operators(v)))
            for v in compiled.job_graph.vertices
        ),
        exchanges=tuple(describe_exchanges(compiled.job_graph)),
    )


def _main() -> None:
    purpose = Purpose(sys.argv[1])
    request: TextRequest = msgspec.json.decode(sys.stdin.buffer.read(), type=_REQUESTS[purpose])
    sys.stdin = open(os.devnull)  # noqa: SIM115 - for as long as the process lives
    answers, sys.stdout = sys.stdout, sys.stderr  # what functions print is no answer
    answer = msgspec.to_builtins(compiled_here(request, purpose))
    answer |= {part: masked_json(answer[part]) for part in ("preview", "failure")}  # the job itself needs its secrets
    answers.buffer.write(msgspec.json.encode(answer))
    answers.flush()


if __name__ == "__main__":
    _main()
