"""Python functions of the document: found and checked when the pipeline is validated, not when it runs."""

from __future__ import annotations

from pathlib import Path

from flowrun.core.schema import Schema
from flowrun.errors import PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.yaml.columns import read_schema
from flowrun.frontend.yaml.nodes import YamlScalar
from flowrun.frontend.yaml.spec import Section
from flowrun.operators.function_loading import load_function
from flowrun.plan.nodes import NodeHints, PlanNode, PythonMap


class PythonReader:
    """Turns `map` and `flat_map` into nodes, reporting what is wrong. Functions are imported from the document's folder."""

    def __init__(self, diagnostics: Diagnostics, folder: Path) -> None:
        self._diagnostics = diagnostics
        self._search_path = (str(folder.resolve()),)

    def read(self, step: Section, key: str, node: PlanNode | None, hints: NodeHints) -> PlanNode | None:
        """The node that calls the function; None if its columns are not known, which is reported.

        Args:
            step: the step.
            key: `map` or `flat_map`.
            node: the rows it is given; None if they are not known.
            hints: of the node.
        """
        section = step.section(key)
        function = section.scalar("function") if section is not None else step.scalar(key)
        if not isinstance(function, YamlScalar):
            return None
        self._check(function)
        schema = self._schema(section, node)
        if node is None or schema is None:
            return None
        return PythonMap(
            schema=schema,
            hints=hints,
            input=node,
            function=function.text,
            flat=key == "flat_map",
            row=bool(section is not None and section.flag("row")),
            search_path=self._search_path,
        )

    def _schema(self, section: Section | None, node: PlanNode | None) -> Schema | None:
        if section is None or not section.has("schema"):
            return None if node is None else node.schema
        return None if section.broken("schema") else read_schema(section.named("schema"), self._diagnostics)

    def _check(self, function: YamlScalar) -> None:
        try:
            load_function(function.text, self._search_path)
        except PipelineError as error:
            for problem in error.diagnostics:
                self._diagnostics.error(problem.message, function.location, hint=problem.hint)
