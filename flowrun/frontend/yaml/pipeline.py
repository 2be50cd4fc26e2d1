"""A whole YAML document as a plan: reading, overrides, interpolation, checking and building, all problems collected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from flowrun.errors import ExpressionError, Location
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.settings.reading import named_packages, read_settings
from flowrun.frontend.settings.slots import check_groups_are_used
from flowrun.frontend.shared_parts import SharedParts, pipeline_references
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.catalog import UserFunction
from flowrun.frontend.sql.script.functions import function_called
from flowrun.frontend.trees.checking import check_document
from flowrun.frontend.trees.interpolation import Interpolation
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.overrides import apply_overrides
from flowrun.frontend.trees.reader import read_yaml
from flowrun.frontend.trees.spec import Section
from flowrun.frontend.yaml.declaration.document import DOCUMENT
from flowrun.frontend.yaml.expressions import ExpressionReader
from flowrun.frontend.yaml.letter_sinks import letter_sinks_of
from flowrun.frontend.yaml.names import Names, sections
from flowrun.frontend.yaml.plan_checks import checked_plan
from flowrun.frontend.yaml.queries.entries import EntryReader
from flowrun.frontend.yaml.queries.queries import QueryReader
from flowrun.frontend.yaml.shared import with_shared_parts, without_unasked_parts
from flowrun.frontend.yaml.steps.aggregations import AggregationReader
from flowrun.frontend.yaml.steps.connections import ConnectionReader
from flowrun.frontend.yaml.steps.python_functions import PythonReader
from flowrun.frontend.yaml.steps.relational_parts import RelationalParts
from flowrun.frontend.yaml.steps.steps import StepReader
from flowrun.frontend.yaml.steps.windows import WindowReader
from flowrun.frontend.yaml.tables.sinks import SinkReader
from flowrun.frontend.yaml.tables.sources import SourceReader
from flowrun.frontend.yaml.tables.tables import TableReader
from flowrun.operators.function_scope import FunctionScope, FunctionScopes, functions_beside
from flowrun.plan.nodes import Plan, PlanNode, Sink, with_constraints
from flowrun.plan.row_errors import LETTERS


def read_pipeline(
    source: SourceText,
    *,
    variables: Mapping[str, str],
    overrides: Iterable[str],
    environment: Mapping[str, str],
    folder: Path,
    diagnostics: Diagnostics,
    functions: FunctionScopes | None = None,
    shared: SharedParts | None = None,
) -> Plan | None:
    """The plan of a YAML pipeline; None if it has errors, which `diagnostics` then holds together with all warnings.

    Args:
        source: the document.
        variables: values for `${NAME}`; they win over the environment.
        overrides: `path=value` texts, applied in order before anything is checked.
        environment: environment variables.
        folder: of the document: secret files are looked up from here.
        diagnostics: receives every problem.
        functions: where Python functions come from; None: from modules in the folder, and from packages of the settings.
        shared: what its project gives it; None: it is in none.
    """
    tree = read_yaml(source, diagnostics)
    if tree is None or (isinstance(tree, YamlScalar) and tree.is_null):
        if not diagnostics.has_errors:
            diagnostics.error("the pipeline is empty", source.locate(0), hint="begin with sources:, steps: and sinks:")
        return None
    references = pipeline_references(shared, variables, environment, folder)
    overrides = list(overrides)
    if shared is not None:
        tree = with_shared_parts(tree, shared, overrides, references, diagnostics)
    tree = apply_overrides(tree, overrides, diagnostics)
    if shared is not None:
        tree = without_unasked_parts(tree, shared)
    tree = Interpolation(references).apply(tree, diagnostics)
    references.warn_unused("the pipeline", diagnostics)
    document = check_document(tree, DOCUMENT, diagnostics)
    if document is None:
        return None
    functions = functions or functions_beside(folder)
    plan = _Builder(document, functions, diagnostics, shared).plan(source)
    if diagnostics.has_errors:
        return None
    return checked_plan(plan, document, diagnostics)


class _Builder:
    """Builds nodes in the order in which they read each other."""

    def __init__(
        self, document: Section, functions: FunctionScopes, diagnostics: Diagnostics, shared: SharedParts | None
    ) -> None:
        self._shared = shared
        self._document = document
        self._diagnostics = diagnostics
        self._nodes: dict[str, PlanNode | None] = {}
        expressions = ExpressionReader(diagnostics)
        tables = TableReader(diagnostics)
        self._sources = SourceReader(diagnostics, expressions, tables)
        self._sinks = SinkReader(diagnostics, tables)
        scope = functions(named_packages(document.section("settings")))
        queries = QueryReader(diagnostics, read_functions(document, scope, diagnostics))
        entries = EntryReader(diagnostics, queries)
        python = PythonReader(diagnostics, scope)
        windows = WindowReader(diagnostics, expressions, python)
        aggregations = AggregationReader(diagnostics, queries, entries, windows)
        relational = RelationalParts(diagnostics, queries, entries)
        connections = ConnectionReader(diagnostics, entries)
        self._steps = StepReader(diagnostics, expressions, entries, aggregations, python, relational, connections)

    def plan(self, source: SourceText) -> Plan:
        """The plan of everything that could be built."""
        names = Names(self._document, self._diagnostics, self._shared)
        names.check_references()
        order = names.build_order()
        settings = read_settings(self._document.section("settings"), self._diagnostics)
        self._check_uids()
        self._check_slot_sharing_groups()
        for name, named in self._document.named("sources").items():
            if isinstance(named.value, Section) and names.is_needed(named):
                self._nodes.setdefault(name, self._sources.read(name, named.value, named.location))
        steps = self._document.named("steps")
        for name in order:
            section = steps[name].value
            if isinstance(section, Section):
                read = names.references(section)
                found = self._steps.read(name, section, read, self._nodes, steps[name].location)
                for output, node in found.items():
                    self._nodes.setdefault(output, node)
        sinks, letter_sinks = self._read_sinks()
        if not self._diagnostics.has_errors:
            names.warn_unused()
        title = self._document.text("name") or Path(source.file).stem
        return Plan(
            name=title,
            sinks=with_constraints(sinks, settings),
            settings=settings,
            text=source.text,
            letter_sinks=dict(zip(letter_sinks, with_constraints(letter_sinks.values(), settings), strict=True)),
        )

    def _read_sinks(self) -> tuple[list[Sink], dict[str, Sink]]:
        """The sinks that read something, and those of dead letters by name."""
        sinks: list[Sink] = []
        letter_sinks: dict[str, Sink] = {}
        of_letters = letter_sinks_of(self._document, self._diagnostics)
        for name, named in self._document.named("sinks").items():
            if not isinstance(named.value, Section):
                continue
            reference = named.value.scalar("from")
            node = self._nodes.get(reference.text) if reference is not None else None
            sink = self._sinks.read(name, named.value, LETTERS if name in of_letters else node, named.location)
            if sink is not None and name in of_letters:
                letter_sinks[name] = sink
            elif sink is not None:
                sinks.append(sink)
        return sinks, letter_sinks

    def _check_slot_sharing_groups(self) -> None:
        parts = [n.value for group in ("sources", "steps", "sinks") for n in self._document.named(group).values()]
        used = {name for p in parts if isinstance(p, Section) and (name := p.text("slot_sharing_group")) is not None}
        check_groups_are_used(self._document.section("settings"), used, self._diagnostics)

    def _check_uids(self) -> None:
        """A uid names one operator: the second use of one is an error."""
        first: dict[str, Location] = {}
        for group in ("sources", "steps", "sinks"):
            for section in sections(self._document.named(group)).values():
                uid = section.scalar("uid")
                if uid is None:
                    continue
                if uid.text in first:
                    self._diagnostics.error(
                        f"the uid '{uid.text}' is already that of line {first[uid.text].line}",
                        uid.location,
                        hint="state is found by its uid, so every uid is used once",
                    )
                first.setdefault(uid.text, uid.location)


def read_functions(document: Section, scope: FunctionScope, diagnostics: Diagnostics) -> dict[str, UserFunction | None]:
    """The functions by name in upper case; None for those that are wrong, which are reported.

    Args:
        document: the whole.
        scope: where they may come from.
        diagnostics: receives every problem.
    """
    found: dict[str, UserFunction | None] = {}
    for name, named in document.named("functions").items():
        if not isinstance(named.value, YamlScalar):
            continue
        if name.upper() in found:
            hint = "functions differ in more than upper and lower case"
            diagnostics.error(f"there are two functions '{name}'", named.location, hint=hint)
            continue
        try:
            found[name.upper()] = function_called(name, named.value.text, scope)
        except ExpressionError as error:
            found[name.upper()] = None
            diagnostics.error(error.message, named.value.location, hint=error.hint)
    return found
