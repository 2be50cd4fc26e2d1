"""What the REST API takes and gives where the text of a pipeline is checked, previewed or submitted."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from msgspec import Meta

from flowrun.core.record import record
from flowrun.rest.refusals import Failure, Problem
from flowrun.runners.session.messages import JobSubmission
from flowrun.runtime.job_details import ExchangeDescription, OperatorDescription
from flowrun.state.checkpoints import ProjectText

FileName = Annotated[
    str,
    Meta(
        pattern=r"^[\w][\w .-]{0,199}\.(sql|yaml|yml)$",
        max_length=255,
        description="the name of a file, without folders, that ends in .sql, .yaml or .yml",
    ),
]
PipelineSource = Annotated[str, Meta(min_length=1, max_length=1_000_000)]
PathText = Annotated[str, Meta(min_length=1, max_length=4_096)]
Values = Annotated[dict[str, str], Meta(max_length=1_000)]


@record
class TextRequest:
    """The text of a pipeline. Python programs, and functions of modules beside the text, do not travel so.

    Attributes:
        text: of the pipeline.
        file: the name that it would have as a file: its ending tells SQL from YAML.
        variables: values for `${NAME}`.
        secrets: the same, for values that are shown and kept nowhere.
        overrides: values by path that replace those in the text, such as `settings.parallelism`.
    """

    text: PipelineSource
    file: FileName = "pipeline.sql"
    variables: Values = field(default_factory=dict)
    secrets: Values = field(default_factory=dict)
    overrides: Values = field(default_factory=dict)


@record
class PreviewRequest(TextRequest):
    """The text of a pipeline that is looked at.

    Attributes:
        rows: rows of each sink that are wanted; if there are any, a sample of the real input goes through, and nothing is written or kept.
        sample: rows that are read of each source for that, about.
        seconds: for how long at most.
    """

    rows: Annotated[int, Meta(ge=0, le=1_000)] = 0
    sample: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    seconds: Annotated[int, Meta(ge=1, le=20)] = 10


@record
class SubmitRequest(TextRequest):
    """The text of a pipeline that is to run.

    Attributes:
        from_savepoint: a savepoint, a checkpoint or a folder of them that it goes on from; null: it starts afresh.
        allow_non_restored_state: whether state of operators that it does not have any more is dropped.
        committed_after: what becomes of rows that were committed after the state that it goes on from, as `--committed-after` says.
        directory: the folder of the file, for messages, and where relative paths of secrets start; null: the working directory.
        working_directory: the folder in which relative paths of tables and of state start; null: that of the server.
        project: what the project of the pipeline adds; null: it is in none.
        upgrade: the id of the upgrade that it is a part of, as `flowrun apply` notes it; empty: it is a job by itself.
    """

    from_savepoint: PathText | None = None
    allow_non_restored_state: bool = False
    committed_after: Literal["refuse", "remove", "remove-existing", "keep"] = "refuse"
    directory: PathText | None = None
    working_directory: PathText | None = None
    project: ProjectText | None = None
    upgrade: Annotated[str, Meta(max_length=64)] = ""


@record
class Delivery:
    """What is promised of a sink after a failure.

    Attributes:
        sink: its name.
        delivery: `exactly once` and the like.
        reasons: what is in the way of more, or what it rests on.
    """

    sink: str
    delivery: str
    reasons: tuple[str, ...] = ()


@record
class PlannedVertex:
    """A vertex that a job would have."""

    vertex_id: str
    name: str
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorDescription, ...]


@record
class Validation:
    """Whether a text is a pipeline.

    Attributes:
        valid: whether there are no errors.
        problems: errors, or the warnings of a valid one.
        delivery: what is promised of each sink.
    """

    valid: bool
    problems: tuple[Problem, ...] = ()
    delivery: tuple[Delivery, ...] = ()


@record
class SampledTable:
    """What a sink would get of a sample: the final table, if its rows are updated.

    Attributes:
        name: of the sink.
        columns: their names.
        types: their SQL types.
        rows: as texts, as `flowrun preview` shows them; the first ones, if there are more than were asked for.
        row_count: how many there are.
    """

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    row_count: int


@record
class SampledRows:
    """What came of a sample of the input.

    Attributes:
        read: name of a source → rows that were read of it.
        was_cut: whether a source goes on behind the sample.
        tables: of the sinks.
    """

    read: dict[str, int]
    was_cut: bool
    tables: tuple[SampledTable, ...]


@record
class Preview:
    """What a text would become.

    Attributes:
        valid: whether there are no errors; what follows from the text is empty else.
        problems: errors, or the warnings of a valid one.
        delivery: what is promised of each sink.
        name: of the pipeline.
        mode: `streaming` or `batch`.
        plan: as text, before and after the rewrites.
        vertices: of its job graph, in topological order; a batch has none.
        exchanges: between them.
        sampled: rows of a sample, if some were asked for.
    """

    valid: bool
    problems: tuple[Problem, ...] = ()
    delivery: tuple[Delivery, ...] = ()
    name: str = ""
    mode: str = ""
    plan: str = ""
    vertices: tuple[PlannedVertex, ...] = ()
    exchanges: tuple[ExchangeDescription, ...] = ()
    sampled: SampledRows | None = None


@record
class Submitted:
    """A job that was taken: `GET /v1/jobs/{job_id}` tells of it."""

    job_id: str


@record
class Compilation:
    """What another process tells of a text.

    Attributes:
        preview: of it.
        submission: the job, if one was asked for and there are no errors.
        failure: why there is none, beside errors in the text.
    """

    preview: Preview
    submission: JobSubmission | None = None
    failure: Failure | None = None
