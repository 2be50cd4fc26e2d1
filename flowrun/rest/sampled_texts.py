"""What the text of a pipeline makes of a sample of its real input, for the REST API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flowrun.rest.texts import PreviewRequest, SampledRows, SampledTable

if TYPE_CHECKING:
    from flowrun.operators.function_scope import FunctionScopes
    from flowrun.plan.nodes import Plan
    from flowrun.runners.compile import CompiledPipeline
    from flowrun.runners.preview import Sample


def sampled_rows(request: PreviewRequest, compiled: CompiledPipeline, functions: FunctionScopes) -> SampledRows:
    """Run a sample through a text; see `flowrun.runners.preview`. Relative paths start in the working directory of this process.

    Args:
        request: what is asked for.
        compiled: its text.
        functions: with which it was compiled.

    Raises:
        PipelineError: a batch cannot run as a stream, or a source cannot be read without a trace.
        JobFailedError: the job failed.
    """
    from flowrun.runners.notebook.results import sampled_results
    from flowrun.runners.preview import Sample

    sample = Sample(request.sample, request.seconds * 1_000)
    results, found = sampled_results(_plan(request, compiled, functions, sample), sample)
    tables = tuple(
        SampledTable(
            result.name,
            tuple(field.name for field in result.schema),
            tuple(str(field.type) for field in result.schema),
            tuple(zip(*result.texts(request.rows), strict=True)),
            len(result),
        )
        for result in results.values()
    )
    return SampledRows(dict(found.read), found.was_cut, tables)


def _plan(request: PreviewRequest, compiled: CompiledPipeline, functions: FunctionScopes, sample: Sample) -> Plan:
    """The plan of the sample: that of the text. A batch is bound again, as a stream."""
    from flowrun.frontend.source_text import SourceText
    from flowrun.runners.preview import preview_text_plan, sampling_plan

    if not compiled.is_batch:
        return sampling_plan(compiled.plan, sample)
    source = SourceText(request.file, request.text)
    variables = {**request.variables, **request.secrets}
    return preview_text_plan(source, Path.cwd(), variables, request.overrides, functions, sample)
