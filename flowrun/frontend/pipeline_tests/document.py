"""A file of tests as values: reads it, checks its keys, and finds everything that is wrong with it at once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TypeAlias

from flowrun.core.record import record
from flowrun.core.units import parse_instant_ms
from flowrun.errors import Location, PipelineError, near_matches
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline_tests.declaration import AS_WRITTEN, EXPECTED, TESTS, VARIANTS
from flowrun.frontend.pipeline_tests.rows import WrittenRows, read_rows
from flowrun.frontend.references import References
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.trees.checking import check_document
from flowrun.frontend.trees.interpolation import Interpolation
from flowrun.frontend.trees.nodes import YamlMapping, YamlNode, YamlScalar, describe
from flowrun.frontend.trees.reader import read_yaml
from flowrun.frontend.trees.spec import Named, RecordValue, Section

TOLERANCE = 1e-9
"""How far floating numbers may differ, relative to them, unless a test says otherwise."""
ALL = "all"
START = "2024-01-01T00:00:00"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@record(eq=False)
class Expected:
    """What is expected of one sink.

    Attributes:
        sink: its name.
        rows: the rows.
        location: of the sink's name.
        in_order: whether their order counts.
        key: columns by which rows that differ are shown side by side; empty: by the sink's primary key, or by likeness.
        tolerance: of floating numbers, relative to them.
        changes: each change counts, not the table that is left; None: nothing is said.
    """

    sink: str
    rows: WrittenRows
    location: Location
    in_order: bool = False
    key: tuple[str, ...] = ()
    tolerance: float = TOLERANCE
    changes: bool = False


@record(eq=False)
class Late:
    """How many rows are dropped as late: in all, or by step."""

    counts: Mapping[str, int] | int
    location: Location


@record(eq=False)
class Give:
    """Rows come from a source."""

    source: str
    rows: WrittenRows
    location: Location


@record(eq=False)
class Reach:
    """Event time reaches `time_ms`, ms since 1970, in a source; None: in all that have event time."""

    source: str | None
    time_ms: int
    location: Location


@record(eq=False)
class Rest:
    """A source is idle."""

    source: str
    location: Location


@record(eq=False)
class Pass:
    """Processing time goes on by `ms`."""

    ms: int
    location: Location


@record(eq=False)
class End:
    """A source ends; None: all do."""

    source: str | None
    location: Location


@record(eq=False)
class Look:
    """What has come so far is compared."""

    expected: tuple[Expected, ...]
    late: Late | None
    location: Location


Action: TypeAlias = Give | Reach | Rest | Pass | End | Look


@record(eq=False)
class Surroundings:
    """Under what a test runs.

    Attributes:
        variables: of the pipeline.
        overrides: values by path that replace those in it.
        now_ms: processing time at the beginning, ms since 1970.
        lookups: rows of tables that are asked, by name.
        functions: `module:name` of what stands for Python functions, by that of the function.
        calls: tables of calls that stand for them, likewise.
        variants: ways in which it runs.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    now_ms: int = 0
    lookups: Mapping[str, WrittenRows] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, WrittenRows] = field(default_factory=dict)
    variants: tuple[str, ...] = VARIANTS


@record(eq=False)
class PipelineTest:
    """One test.

    Attributes:
        name: what it shows.
        location: of its name.
        actions: what happens, in order.
        expected: at the end.
        late: at the end; None: nothing is said.
        error: what the message of the failure contains; None: the job does not fail.
        surroundings: under what it runs.
    """

    name: str
    location: Location
    actions: tuple[Action, ...]
    expected: tuple[Expected, ...]
    late: Late | None
    error: str | None
    surroundings: Surroundings


@record(eq=False)
class PipelineTestFile:
    """A file of tests.

    Attributes:
        source: its text.
        folder: it is in.
        pipeline: the file that is tested.
        pipeline_location: where that is named.
        tests: in order.
    """

    source: SourceText
    folder: Path
    pipeline: Path
    pipeline_location: Location
    tests: tuple[PipelineTest, ...]


def read_tests(path: Path, environment: Mapping[str, str] | None = None) -> PipelineTestFile:
    """The tests of a file.

    Args:
        path: of the file; `${NAME}` in it is filled from the environment.
        environment: None: that of this process.

    Raises:
        PipelineError: the file cannot be read, or something in it is wrong; carries all problems.
    """
    try:
        text = path.read_bytes().decode("utf-8")  # line breaks as they are: the file may be rewritten
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise PipelineError.of(f"cannot read the tests in '{path}': {reason}") from error
    return check_tests(SourceText(str(path), text), environment)


def check_tests(source: SourceText, environment: Mapping[str, str] | None = None) -> PipelineTestFile:
    """The tests of a text, by itself: its pipelines are not looked at. Arguments, and what it raises, as `read_tests`."""
    diagnostics = Diagnostics(source)
    folder = Path(source.file).parent
    read = _Reader(source, folder, diagnostics).read(os.environ if environment is None else environment)
    diagnostics.raise_if_errors()
    assert read is not None
    return read


class _Reader:
    def __init__(self, source: SourceText, folder: Path, diagnostics: Diagnostics) -> None:
        self._source = source
        self._folder = folder
        self._diagnostics = diagnostics

    def read(self, environment: Mapping[str, str]) -> PipelineTestFile | None:
        tree = read_yaml(self._source, self._diagnostics)
        if tree is None or (isinstance(tree, YamlScalar) and tree.is_null):
            if not self._diagnostics.has_errors:
                self._diagnostics.error(
                    "the file has no tests", self._source.locate(0), hint="begin with pipeline: and tests:"
                )
            return None
        tree = Interpolation(References({}, environment, self._folder)).apply(tree, self._diagnostics)
        document = check_document(tree, TESTS, self._diagnostics)
        if document is None:
            return None
        shared = self._surroundings(document, Surroundings(now_ms=parse_instant_ms(START)))
        tests = tuple(self._test(section, shared) for section in document.sections("tests"))
        self._check_names(tests)
        named = document.scalar("pipeline")
        if named is None:
            return None
        return PipelineTestFile(
            self._source, self._folder, _without_dots(self._folder / named.text), named.location, tests
        )

    def _check_names(self, tests: Sequence[PipelineTest]) -> None:
        first: dict[str, Location] = {}
        for test in tests:
            if test.name and test.name in first:
                self._diagnostics.error(
                    f"there are two tests '{test.name}', the first in line {first[test.name].line}",
                    test.location,
                    hint="tests are chosen by their names: call each otherwise",
                )
            first.setdefault(test.name, test.location)

    def _surroundings(self, section: Section, outer: Surroundings) -> Surroundings:
        replaced = section.section("replace")
        lookups = {} if replaced is None else self._rows_by_name(replaced.named("lookup"))
        functions, calls = self._functions({} if replaced is None else replaced.named("functions"))
        variants = section.values.get("variants")
        now = section.scalar("now")
        return Surroundings(
            {**outer.variables, **_texts(section.named("variables"))},
            {**outer.overrides, **_texts(section.named("set"))},
            outer.now_ms if now is None else self._moment(now),
            {**outer.lookups, **lookups},
            {**{n: f for n, f in outer.functions.items() if n not in calls}, **functions},
            {**{n: t for n, t in outer.calls.items() if n not in functions}, **calls},
            outer.variants
            if variants is None
            else (AS_WRITTEN, *(str(v) for v in _tuple(variants) if v != AS_WRITTEN)),
        )

    def _functions(self, named: Mapping[str, Named]) -> tuple[dict[str, str], dict[str, WrittenRows]]:
        """(other functions, tables of calls) that stand for functions."""
        functions: dict[str, str] = {}
        calls: dict[str, WrittenRows] = {}
        for name, value in named.items():
            tree = value.value
            if not isinstance(tree, YamlScalar) or "\n" in tree.text:
                calls |= self._rows_by_name({name: value})
            elif _FUNCTION.fullmatch(tree.text):
                functions[name] = tree.text
            else:
                self._diagnostics.error(
                    f"'{tree.text}' is no function: it is written module:function",
                    tree.location,
                    hint="or give its calls as rows: [{amount: 5, result: 0.5}]",
                )
        return functions, calls

    def _test(self, section: Section, shared: Surroundings) -> PipelineTest:
        before = len(self._diagnostics.found)
        name = section.scalar("name")
        given, steps = section.named("given"), section.sections("steps")
        if section.has("given") == section.has("steps") and not (section.broken("given") or section.broken("steps")):
            both = section.has("given")
            problem = (
                "has both 'given' and 'steps'" if both else "says neither what is 'given' nor what 'steps' there are"
            )
            self._diagnostics.error(
                f"the test {problem}",
                section.at("steps") if both else section.location,
                hint="given: {source: rows} if all rows come at once; steps: with rows, watermarks and times in order",
            )
        actions: list[Action] = [
            Give(source, rows, given[source].location) for source, rows in self._rows_by_name(given).items()
        ]
        if section.has("given"):
            actions.append(End(None, section.at("given")))
        for step in steps:
            actions += self._step(step)
        error = section.values.get("error")
        contains = error.text("contains") if isinstance(error, Section) else getattr(error, "text", None)
        test = PipelineTest(
            "" if name is None else name.text,
            section.location if name is None else name.location,
            tuple(actions),
            self._expected(section),
            self._late(section),
            contains,
            self._surroundings(section, shared),
        )
        looks = test.expected or test.late or test.error or any(isinstance(a, Look) for a in actions)
        told = section.broken("steps") or len(self._diagnostics.found) > before
        if not looks and not told and not any(section.has(key) for key in ("expect", "late", "error")):
            self._diagnostics.error(
                "the test expects nothing", test.location, hint="say what is to come out: expect: {sink: rows}"
            )
        return test

    def _step(self, section: Section) -> list[Action]:
        """What a step does, in the order in which it is written."""
        extra = {entry.name: entry for entry in section.extra}
        actions: list[Action] = []
        for entry in section.node.entries:
            at = entry.key.location
            if entry.name in extra:
                near = near_matches(entry.name, [key.name for key in section.spec.keys])
                if isinstance(entry.value, YamlMapping) and entry.value.entry("file") is None and near:
                    hint = f"did you mean '{near[0]}'? Other keys are sources, with lists of rows"
                    self._diagnostics.error(f"a step of a test has no key '{entry.name}'", at, hint=hint)
                    continue
                rows = read_rows(entry.value, self._folder, self._diagnostics)
                if rows is not None:
                    actions.append(Give(entry.name, rows, at))
            elif section.has(entry.name) and not section.broken(entry.name):
                actions += self._action(section, entry.name, at)
        if section.has("expect") or section.has("late"):
            at = section.at("expect" if section.has("expect") else "late")
            actions.append(Look(self._expected(section), self._late(section), at))
        return actions

    def _action(self, section: Section, key: str, at: Location) -> list[Action]:
        match key:
            case "rows":
                named = section.named("rows")
                return [Give(n, rows, named[n].location) for n, rows in self._rows_by_name(named).items()]
            case "watermark":
                return self._watermarks(section.tree("watermark"), at)
            case "idle":
                return [Rest(scalar.text, scalar.location) for scalar in section.scalars("idle")]
            case "advance":
                return [Pass(section.integer("advance") or 0, at)]
            case "end":
                return [End(None if s.text == ALL else s.text, s.location) for s in section.scalars("end")]
        return []

    def _watermarks(self, tree: YamlNode | None, at: Location) -> list[Action]:
        match tree:
            case YamlMapping():
                return [
                    Reach(e.name, self._moment(e.value), e.key.location)
                    for e in tree.entries
                    if isinstance(e.value, YamlScalar) or self._no_moment(e.value)
                ]
            case YamlScalar():
                return [Reach(None, self._moment(tree), at)]
        if tree is not None:
            self._no_moment(tree)
        return []

    def _no_moment(self, node: YamlNode) -> bool:
        self._diagnostics.error(f"'watermark' expects a time, got {describe(node)}", node.location)
        return False

    def _moment(self, scalar: YamlNode) -> int:
        """Ms since 1970."""
        assert isinstance(scalar, YamlScalar)
        try:
            return parse_instant_ms(scalar.text)
        except ValueError as error:
            self._diagnostics.error(f"'{scalar.text}' is no time", scalar.location, hint=str(error))
            return 0

    def _rows_by_name(self, named: Mapping[str, Named]) -> dict[str, WrittenRows]:
        found = {}
        for name, value in named.items():
            if isinstance(value.value, YamlNode):
                rows = read_rows(value.value, self._folder, self._diagnostics)
                if rows is not None:
                    found[name] = rows
        return found

    def _expected(self, section: Section) -> tuple[Expected, ...]:
        found = (self._expected_of(name, named) for name, named in section.named("expect").items())
        return tuple(e for e in found if e is not None)

    def _expected_of(self, sink: str, named: Named) -> Expected | None:
        tree = named.value
        if not isinstance(tree, YamlNode):
            return None
        if not isinstance(tree, YamlMapping) or [e.name for e in tree.entries] == ["file"]:
            rows = read_rows(tree, self._folder, self._diagnostics)
            return None if rows is None else Expected(sink, rows, named.location)
        section = check_document(tree, RecordValue(EXPECTED), self._diagnostics)
        written = None if section is None else section.tree("rows")
        rows = None if written is None else read_rows(written, self._folder, self._diagnostics)
        if section is None or rows is None:
            return None
        tolerance = section.number("tolerance")
        if tolerance is not None and tolerance < 0:
            self._diagnostics.error(
                f"'tolerance' must be at least 0, got {tolerance:g}",
                section.value_at("tolerance"),
                hint="0 compares exactly",
            )
        return Expected(
            sink,
            rows,
            named.location,
            section.text("order") == "exact",
            tuple(s.text for s in section.scalars("key")),
            TOLERANCE if tolerance is None else tolerance,
            section.text("as") == "changes",
        )

    def _late(self, section: Section) -> Late | None:
        tree = section.tree("late")
        match tree:
            case None:
                return None
            case YamlScalar():
                return Late(self._count(tree), tree.location)
            case YamlMapping():
                return Late({e.name: self._count(e.value) for e in tree.entries}, tree.location)
        self._diagnostics.error(f"'late' expects a number of rows, got {describe(tree)}", tree.location)
        return None

    def _count(self, node: YamlNode) -> int:
        if isinstance(node, YamlScalar) and node.text.isascii() and node.text.isdigit():
            return int(node.text)
        self._diagnostics.error(f"'late' expects a number of rows, got {describe(node)}", node.location)
        return 0


def _without_dots(path: Path) -> Path:
    """A path without `..`, as messages show it, where that leads to the same file: not always behind symbolic links."""
    shorter = Path(os.path.normpath(path))
    return shorter if path.exists() and shorter.exists() and shorter.samefile(path) else path


def _texts(named: Mapping[str, Named]) -> dict[str, str]:
    return {name: value.value.text for name, value in named.items() if isinstance(value.value, YamlScalar)}


def _tuple(value: object) -> tuple[object, ...]:
    assert isinstance(value, tuple)
    return value
