"""Python functions of the document: found and checked when the pipeline is validated, not when it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

import pyarrow as pa

from flowrun.core.schema import Schema
from flowrun.core.semantics import NullKeys
from flowrun.errors import PipelineError, did_you_mean
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.trees.nodes import YamlScalar
from flowrun.frontend.trees.spec import Named, Section
from flowrun.frontend.yaml.columns import read_schema
from flowrun.frontend.yaml.steps.keys import KeyedRows
from flowrun.operators.function_loading import load_function, takes_context
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.operators.function_scope import FunctionScope
from flowrun.operators.process.function_kinds import FunctionInputs
from flowrun.operators.process.loading import LoadedFunction, load_process_function
from flowrun.plan.co_process import CoProcess
from flowrun.plan.nodes import AsyncMap, AsyncRetries, FunctionWindows, NodeHints, PlanNode, Process, PythonMap
from flowrun.plan.windows import CustomWindow, SessionWindow, UserClass

T = TypeVar("T")


class PythonReader:
    """Turns `map`, `flat_map`, `async` and `process` into nodes, reporting what is wrong. `scope` says where functions may come from."""

    def __init__(self, diagnostics: Diagnostics, scope: FunctionScope) -> None:
        self._diagnostics = diagnostics
        self._scope = scope
        self._search_path = scope.folders

    def read(self, step: Section, key: str, node: PlanNode | None, hints: NodeHints) -> PythonMap | None:
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
        schema, sides = self._schema(section, node), self._side_schemas(section)
        self._report(function, lambda: self._load_map(function.text, bool(sides)))
        if node is None or schema is None or sides is None:
            return None
        return PythonMap(
            schema=schema,
            hints=hints,
            input=node,
            function=function.text,
            flat=key == "flat_map",
            row=bool(section is not None and section.flag("row")),
            side_outputs=sides,
            search_path=self._search_path,
        )

    def read_async(self, step: Section, node: PlanNode | None, hints: NodeHints) -> AsyncMap | None:
        """The node of the step's asynchronous function; None if it cannot be built, which is reported.

        Args:
            step: the step.
            node: the rows it is given; None if they are not known.
            hints: of the node.
        """
        from flowrun.operators.asynchronous.loading import load_async_function  # here, as few pipelines need it

        section = step.section("async")
        function = section.scalar("function") if section is not None else step.scalar("async")
        if not isinstance(function, YamlScalar):
            return None
        arguments = {n: v.value for n, v in section.named("with").items()} if section is not None else {}
        if section is None or not section.broken("with"):
            recipe = FunctionRecipe(function.text, arguments, self._search_path)
            self._report(function, lambda: load_async_function(recipe))
        schema, sides = self._schema(section, node), self._side_schemas(section)
        broken = section is not None and any(map(section.broken, ("retry", "capacity", "timeout", "mode", "call_rows")))
        if node is None or schema is None or sides is None or broken:
            return None
        made = AsyncMap(
            schema=schema,
            hints=hints,
            input=node,
            function=function.text,
            arguments=arguments,
            side_outputs=sides,
            search_path=self._search_path,
        )
        if section is None:
            return made
        return replace(
            made,
            ordered=section.text("mode") != "unordered",
            capacity=section.integer("capacity") or made.capacity,
            timeout_ms=section.integer("timeout"),
            call_rows=section.integer("call_rows") or made.call_rows,
            retry=self._retries(section.section("retry")),
        )

    def _retries(self, section: Section | None) -> AsyncRetries | None:
        """Which calls are made again; what cannot be is reported."""
        if section is None:
            return None
        predicates = [section.scalar(key) for key in ("on_result", "on_exception")]
        for predicate in predicates:
            if predicate is not None:
                self._check(predicate)
        delay, most = section.integer("delay"), section.integer("max_delay")
        delay = 1000 if delay is None else delay
        multiplier = section.number("multiplier") or 1.0
        if most is not None and most < delay:
            self._diagnostics.error(
                "'max_delay' is shorter than 'delay'", section.at("max_delay"), hint="make it longer"
            )
        if multiplier < 1:
            hint = "with less than 1 each delay would be shorter than the one before"
            self._diagnostics.error("'multiplier' must be at least 1", section.at("multiplier"), hint=hint)
        on_result, on_exception = (None if p is None else p.text for p in predicates)
        return AsyncRetries(section.integer("attempts") or 1, delay, multiplier, most, on_result, on_exception)

    def read_process(
        self,
        step: Section,
        node: PlanNode | None,
        keys: tuple[int, ...] | None,
        hints: NodeHints,
        windows: FunctionWindows | None = None,
    ) -> Process | None:
        """The node of the step's process function; None if it cannot be built, which is reported.

        Args:
            step: the step.
            node: the rows it is given; None if they are not known.
            keys: positions of its keys.
            hints: of the node.
            windows: it is a window function of these.
        """
        found = self._process_class(step, partial(_load_process, step, windows))
        schema, sides = self._process_schemas(step, node)
        if found is None or node is None or schema is None or sides is None:
            return None
        called, loaded = found
        return Process(
            schema=schema,
            hints=hints,
            input=node,
            function=called.reference,
            arguments=called.arguments,
            keys=keys,
            null_keys=NullKeys(step.text("null_keys") or "fail"),
            side_outputs=sides,
            search_path=self._search_path,
            windows=windows,
            tables=_tables(loaded, node, keys),
        )

    def read_co_process(
        self, step: Section, first: KeyedRows | None, second: KeyedRows | None, hints: NodeHints
    ) -> CoProcess | None:
        """The node of the step's function of two streams; None if it cannot be built, which is reported.

        Args:
            step: the step.
            first: its own rows; None if they are not known.
            second: those of the other stream.
            hints: of the node.
        """
        load = self._load_broadcast if step.has("broadcast") else _load_co_process
        found = self._process_class(step, partial(load, step))
        schema, sides = self._process_schemas(step, None if first is None else first.node)
        if found is None or first is None or second is None or schema is None or sides is None:
            return None
        called, loaded = found
        return CoProcess(
            schema=schema,
            hints=hints,
            left=first.node,
            right=second.node,
            function=called.reference,
            arguments=called.arguments,
            left_keys=first.keys,
            right_keys=second.keys,
            broadcast=step.has("broadcast"),
            null_keys=NullKeys(step.text("null_keys") or "fail"),
            side_outputs=sides,
            search_path=self._search_path,
            tables=_tables(loaded, first.node, first.keys),
        )

    def _process_class(
        self, step: Section, load: Callable[[FunctionRecipe], LoadedFunction | None]
    ) -> tuple[FunctionRecipe, LoadedFunction | None] | None:
        """The class of `process` with its arguments, whatever is wrong with it, which is reported; None if none is named.

        Beside it stands what `load` gives; None if something is wrong.
        """
        section = step.section("process")
        function = section.scalar("function") if section is not None else step.scalar("process")
        if not isinstance(function, YamlScalar):
            return None
        arguments = {n: v.value for n, v in section.named("with").items()} if section is not None else {}
        recipe = FunctionRecipe(function.text, arguments, self._search_path)
        loaded = None
        if section is None or not section.broken("with"):
            loaded = self._loaded(function, lambda: load(recipe))
        return recipe, loaded

    def _load_broadcast(self, step: Section, recipe: FunctionRecipe) -> LoadedFunction:
        """A function of a broadcast stream; states that `broadcast` names and the function does not declare are reported.

        Raises:
            PipelineError: it cannot be made, or does not keep to the rules.
        """
        loaded = load_process_function(recipe, keyed=step.has("key_by"), inputs=FunctionInputs.BROADCAST)
        broadcast = step.section("broadcast")
        if broadcast is not None and broadcast.has("states") and not broadcast.broken("states"):
            self._check_states(broadcast, recipe.reference, loaded.broadcast_states)
        return loaded

    def _check_states(self, broadcast: Section, reference: str, declared: Mapping[str, object]) -> None:
        """Report states that `broadcast` names and the function does not declare, and the other way round."""
        states = broadcast.scalars("states")
        unknown = [state for state in states if state.text not in declared]
        for state in unknown:
            self._diagnostics.error(
                f"'{reference}' declares no broadcast state '{state.text}'",
                state.location,
                hint=did_you_mean(state.text, declared) or f"it declares: {', '.join(declared) or 'none'}",
            )
        missing = set(declared) - {state.text for state in states}
        if missing and not unknown:
            self._diagnostics.error(
                f"'{reference}' declares the broadcast state '{min(missing)}', which 'states' does not name",
                broadcast.at("states"),
                hint=f"write states: [{', '.join(declared)}], or leave it out",
            )

    def _process_schemas(
        self, step: Section, node: PlanNode | None
    ) -> tuple[Schema | None, Mapping[str, Schema] | None]:
        """The columns that a process function sends, and those of its side outputs; None for what is wrong or not known."""
        section = step.section("process")
        return self._schema(section, node), self._side_schemas(section)

    def user_class(self, section: Section, check: Callable[[UserClass], object]) -> UserClass | None:
        """The class that `function` names, with the arguments of `with`; None if there is none, or if `check` raises, which is reported."""
        function = section.scalar("function")
        if function is None or section.broken("with"):
            return None
        arguments = {n: v.value for n, v in section.named("with").items()}
        given = UserClass(function.text, arguments, self._search_path)
        return given if self._report(function, lambda: check(given)) else None

    def _side_schemas(self, section: Section | None) -> dict[str, Schema] | None:
        if section is None:
            return {}
        if section.broken("side_outputs"):
            return None
        found: dict[str, Schema] = {}
        for name, named in section.named("side_outputs").items():
            columns = read_schema(cast("Mapping[str, Named]", named.value), self._diagnostics)
            if columns is not None:
                found[name] = columns
        return found if len(found) == len(section.named("side_outputs")) else None

    def _schema(self, section: Section | None, node: PlanNode | None) -> Schema | None:
        if section is None or not section.has("schema"):
            return None if node is None else node.schema
        return None if section.broken("schema") else read_schema(section.named("schema"), self._diagnostics)

    def _load_map(self, reference: str, sides: bool) -> None:
        function = load_function(reference, self._search_path, context=True)
        if sides and not takes_context(function):
            raise PipelineError.of(
                f"'{reference}' has side outputs, but no second parameter 'context' by which it could send to them",
                "write def function(row, context), and context.side_output(name, row)",
            )

    def _check(self, function: YamlScalar) -> None:
        self._report(function, lambda: load_function(function.text, self._search_path))

    def _report(self, function: YamlScalar, load: Callable[[], object]) -> bool:
        """Load a function; what is wrong with it is reported where it is named. Whether all is well."""
        return self._loaded(function, lambda: (load(),)) is not None

    def _loaded(self, function: YamlScalar, load: Callable[[], T]) -> T | None:
        """What loading a function gives; None if something is wrong, which is reported where it is named."""
        try:
            self._scope.load(function.text)
            return load()
        except PipelineError as error:
            for problem in error.diagnostics:
                self._diagnostics.error(problem.message, function.location, hint=problem.hint)
            return None


def _tables(
    loaded: LoadedFunction | None, node: PlanNode, keys: tuple[int, ...] | None
) -> tuple[tuple[str, pa.Schema], ...] | None:
    """The tables of the state that a function keeps by the key columns of `node`; None if it is not known."""
    from flowrun.operators.process.factories import declared_tables  # imported here, as few pipelines need it

    return None if loaded is None else declared_tables(loaded, node.schema, keys)


def _load_co_process(step: Section, recipe: FunctionRecipe) -> LoadedFunction:
    """A function of two streams. Raises PipelineError if it cannot be made, or does not keep to the rules."""
    return load_process_function(recipe, keyed=step.has("key_by"), inputs=FunctionInputs.TWO)


def _load_process(step: Section, windows: FunctionWindows | None, recipe: FunctionRecipe) -> LoadedFunction | None:
    """A process function; None for window functions, which are only looked at, and of windows that are wrong nobody asks.

    Raises:
        PipelineError: it cannot be made, or does not keep to the rules.
    """
    if windows is not None:
        # Imported here, as few pipelines have window functions.
        from flowrun.operators.windows.functions.loading import load_window_function

        window = windows.window
        merging = isinstance(window, SessionWindow) or (isinstance(window, CustomWindow) and window.merges)
        load_window_function(recipe, merging=merging)
        return None
    return None if step.has("window") else load_process_function(recipe, keyed=step.has("key_by"))
