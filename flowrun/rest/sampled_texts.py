"""What the text of a pipeline makes of a sample of its real input, for the REST API."""

from __future__ import annotations

import tempfile
from pathlib import Path

from flowrun.rest.texts import PreviewRequest, SampledRows, SampledTable


def sampled_rows(request: PreviewRequest) -> SampledRows:
    """Run a sample through a text; see `flowrun.runners.preview`. Relative paths start in the working directory of this process.

    Raises:
        PipelineError: the text has errors, or a source cannot be read without a trace.
        JobFailedError: the job failed.
    """
    from flowrun.frontend.source_text import SourceText
    from flowrun.operators.function_scope import functions_beside
    from flowrun.runners.notebook.results import sampled_results
    from flowrun.runners.preview import Sample, preview_text_plan

    sample = Sample(request.sample, request.seconds * 1_000)
    variables = {**request.variables, **request.secrets}
    with tempfile.TemporaryDirectory() as nothing:
        plan = preview_text_plan(
            SourceText(request.file, request.text),
            Path.cwd(),
            variables,
            request.overrides,
            functions_beside(Path(nothing)),
            sample,
        )
        results, found = sampled_results(plan, sample)
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
