"""CREATE FUNCTION … LANGUAGE PYTHON: found beside the script, its types from decorators or annotations."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.plan.expressions import PythonCall, walk
from flowrun.plan.nodes import Plan, walk_plan
from flowrun.plan.relational import GroupAggregate, TableFunctionCall
from tests.frontend.sql.script.scripts import ORDERS, plan_of, problems

MODULE = """
import functools
import flowrun
import pyarrow.compute as pc
import numpy as np
import numpy.typing as npt
from collections.abc import Iterator
from typing import overload

@flowrun.udf(result="STRING", deterministic=False)
def mask(card: str, keep: int):
    return card[:keep]

@flowrun.udf(result="BIGINT", arguments=["STRING"], vectorised=True)
def size(text):
    return pc.cast(pc.utf8_length(text), "int64")

def twice(a: int | None) -> int:
    return a * 2

class Plus:
    def __init__(self):
        self.by = 7
    def eval(self, a: int) -> int:
        return a + self.by

plus = Plus()

@flowrun.udtf(result="word STRING, size INT")
def words(text: str):
    yield text, len(text)

@flowrun.udaf(result="DOUBLE")
class Mean:
    def create_accumulator(self): return [0, 0]
    def accumulate(self, total, value: float): total[0] += value; total[1] += 1
    def retract(self, total, value: float): total[0] -= value; total[1] -= 1
    def get_value(self, total): return total[0] / total[1]

class Half:
    pass

def untyped(a): return a
def generator(a: int):
    yield a
number = 5
async def asked(a: int) -> int: return a
@flowrun.udtf(result="n INT")
async def asked_rows(a: int): yield a
class Asking:
    async def __call__(self, a: int) -> int: return a
class AskingSum:
    def create_accumulator(self): return [0]
    async def accumulate(self, total, a: int): ...
    def get_value(self, total) -> int: return total[0]
@flowrun.udf(result="INT")
def yielding(a: int): yield a
def named_only(a: int, *, unit: int) -> int: return a
class NeedsMore:
    def __init__(self, more): ...
    def __call__(self, a: int) -> int: return a
class Broken(NeedsMore):
    def __init__(self): raise KeyError("no file")
def scaled(by: int, a: int, *, unit: int = 1) -> int: return a * by * unit
tenfold = functools.partial(scaled, 10, unit=1)
def mixed(a: np.ndarray, b: float) -> float: ...
def of_column(a: np.ndarray) -> np.ndarray: ...
def odd(a: complex) -> str: ...
def odd_rows(a: str) -> Iterator[complex]: ...
def later(a: "pd.Series") -> str: ...
def split(text: str) -> Iterator[tuple[str, int]]:
    return iter(())
def root(value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return value ** 0.5

@flowrun.udf(arguments=["INT"], result="INT")
@flowrun.udf(arguments=["STRING", "INT"], result="STRING")
@flowrun.udf(arguments=["STRING"], result="STRING")
def double(value, times=2):
    return value * times

@overload
def sign(value: str) -> str: ...
@overload
def sign(value: float, digits: int = 0) -> float: ...
def sign(value, digits=0):
    return value

@flowrun.udtf(arguments=["INT"], result="n INT")
@flowrun.udtf(arguments=["STRING"], result="letter STRING, place INT")
def parts(value):
    yield from ((value,),) if isinstance(value, int) else ((c, i) for i, c in enumerate(value))

@flowrun.udf(arguments=["INT"], result="INT")
@flowrun.udf(result="STRING")
def unclear(value):
    return value
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "udfs_of_test.py").write_text(MODULE)
    return tmp_path


def create(name: str, target: str | None = None) -> str:
    return f"CREATE FUNCTION {name} AS 'udfs_of_test.{target or name}' LANGUAGE PYTHON;\n"


def calls(plan: Plan) -> list[PythonCall]:
    return [
        e
        for node in walk_plan(plan)
        for p in getattr(node, "projections", ())
        for e in walk(p)
        if isinstance(e, PythonCall)
    ]


def test_a_scalar_function(folder: Path) -> None:
    (call,) = calls(plan_of(ORDERS + create("mask") + "SELECT MASK(buyer, 2) FROM orders", folder))
    assert (call.name, call.reference, str(call.type)) == ("mask", "udfs_of_test:mask", "STRING")
    assert [str(a) for a in call.arguments] == ["buyer", "2"]
    assert [str(a.type) for a in call.arguments] == ["STRING", "BIGINT"]
    assert call.search_path == (str(folder),)
    assert (call.vectorised, call.deterministic) == (False, False)


def test_functions_without_decorators_and_objects(folder: Path) -> None:
    script = create("twice") + create("plus", "Plus") + create("more", "plus") + create("size")
    plan = plan_of(ORDERS + script + "SELECT twice(id), plus(id), more(id), size(buyer) FROM orders", folder)
    assert [str(c.type) for c in calls(plan)] == ["BIGINT"] * 4


def test_annotations_say_kind_types_and_style(folder: Path) -> None:
    (call,) = calls(plan_of(ORDERS + create("root") + "SELECT root(price) FROM orders", folder))
    assert (str(call.type), call.vectorised) == ("DOUBLE", True)
    assert str(call.arguments[0].type) == "DOUBLE"
    plan = plan_of(ORDERS + create("split") + "SELECT s.* FROM orders, LATERAL TABLE(split(buyer)) AS s", folder)
    assert [(f.name, str(f.type)) for f in plan.sinks[0].schema] == [("f0", "STRING"), ("f1", "BIGINT")]


def test_computed_columns_call_functions(folder: Path) -> None:
    table = "CREATE TABLE t (a INT, b AS twice(a)) WITH ('connector' = 'datagen');\n"
    (call,) = calls(plan_of(create("twice") + table + "SELECT b FROM t", folder))
    assert [str(a) for a in call.arguments] == ["CAST(a AS BIGINT)"]
    assert "Mean" not in problems(create("m", "words") + table.replace("twice", "m") + "SELECT b FROM t", folder)
    assert "is an aggregate" in problems(create("m", "Mean") + table.replace("twice", "m") + "SELECT b FROM t", folder)


def test_table_functions_and_aggregates(folder: Path) -> None:
    plan = plan_of(
        ORDERS
        + create("words")
        + create("mean", "Mean")
        + "SELECT w, s FROM orders, LATERAL TABLE(words(buyer)) AS t(w, s);\n"
        "SELECT buyer, mean(price) FROM orders GROUP BY buyer",
        folder,
    )
    nodes = list(walk_plan(plan))
    (table,) = (n for n in nodes if isinstance(n, TableFunctionCall))
    assert table.function == "udfs_of_test:words"
    (grouped,) = (n for n in nodes if isinstance(n, GroupAggregate))
    (call,) = grouped.aggregates
    assert call.reference is not None
    assert (call.function, call.reference.reference, call.reference.retractable) == ("mean", "udfs_of_test:Mean", True)


def test_the_java_function_of_published_queries_is_built_in(folder: Path) -> None:
    java = "CREATE FUNCTION count_char AS 'com.github.nexmark.flink.udf.CountChar';\n"
    (call,) = calls(plan_of(ORDERS + java + "SELECT count_char(buyer, 'c') FROM orders", folder))
    assert call.reference == "flowrun.connectors.nexmark_functions:count_char"


@pytest.mark.parametrize(
    ("script", "message", "hint"),
    [
        ("CREATE FUNCTION f AS 'a.b.C' LANGUAGE JAVA", "functions in JAVA cannot be called", "LANGUAGE PYTHON"),
        ("CREATE FUNCTION f AS 'a.b.C'", "this is a function in Java", "LANGUAGE PYTHON"),
        ("CREATE FUNCTION f AS 'os.system' LANGUAGE PYTHON", "'os' is a module of Python itself", "of your own"),
        (
            "CREATE FUNCTION f AS 'subprocess:Popen' LANGUAGE PYTHON",
            "'subprocess' is a module of Python",
            "of your own",
        ),
        (
            "SET 'flowrun.functions' = 'pyarrow'; CREATE FUNCTION f AS 'numpy.sqrt' LANGUAGE PYTHON",
            "no package",
            "numpy",
        ),
        ("CREATE FUNCTION f AS 'clean' LANGUAGE PYTHON", "'clean' names no module", "my_functions.clean"),
        ("CREATE FUNCTION f AS 'nowhere.clean' LANGUAGE PYTHON", "there is no module 'nowhere'", "beside the pipeline"),
        (create("f", "maks"), "has no 'maks'", "did you mean 'mask'"),
        (create("f", "untyped"), "the type of its result is not known", "@flowrun.udf(result="),
        (create("f", "generator"), "the columns of its rows are not known", "@flowrun.udtf(result="),
        (create("f", "mixed"), "parameter 'b' takes the value of one row, but 'a' takes a NumPy array (", "as columns"),
        (create("f", "of_column"), "the type of its result is not known (", 'Annotated[ndarray, "BIGINT"]'),
        (create("f", "odd"), "parameter 'a' is annotated complex, which has no SQL type (", "annotate it with int"),
        (create("f", "odd_rows"), "the result is annotated complex, which has no SQL type (", "annotate it with int"),
        (
            create("f", "later"),
            "parameter 'a' is annotated 'pd.Series', which cannot be evaluated",
            "import what it names",
        ),
        (create("f", "Half"), "cannot be called", "__call__ or eval"),
        (create("f", "number"), "cannot be called", "name a function"),
        (create("f", "asked"), "asked is asynchronous", "AsyncFunction"),
        (create("f", "asked_rows"), "asked_rows is asynchronous", "AsyncFunction"),
        (create("f", "Asking"), "__call__ is asynchronous", "AsyncFunction"),
        (create("f", "AskingSum"), "accumulate is asynchronous", "AsyncFunction"),
        (create("f", "yielding"), "yielding yields, and one value is expected of it", "@flowrun.udtf"),
        (create("f", "named_only"), "named_only takes 'unit' by name only", "give it a default"),
        (create("f", "NeedsMore"), "making a NeedsMore failed: TypeError", "without arguments"),
        (create("f", "Broken"), "making a Broken failed: KeyError: 'no file'", "in open()"),
        (create("twice") + create("twice"), "function 'twice' exists already", "DROP FUNCTION"),
        (ORDERS + create("twice") + "SELECT twice(buyer) FROM orders", "BIGINT", "CAST"),
        (ORDERS + create("twice") + "SELECT twice(id, 1) FROM orders", "twice takes 1", "twice(BIGINT)"),
    ],
)
def test_wrong_functions(folder: Path, script: str, message: str, hint: str) -> None:
    shown = problems(script, folder)
    assert message in shown
    assert hint in shown


def test_a_partial_takes_what_is_left(folder: Path) -> None:
    (sink,) = plan_of(f"{create('tenfold')}SELECT tenfold(1) AS x;", folder).sinks
    assert str(sink.schema.types[0]) == "BIGINT"
    assert "tenfold takes 1" in problems(f"{create('tenfold')}SELECT tenfold(1, 2) AS x;", folder)


def test_a_wrong_function_is_reported_once(folder: Path) -> None:
    shown = problems(ORDERS + create("f", "untyped") + "SELECT f(id) FROM orders; SELECT F(buyer) FROM orders", folder)
    assert shown.count("error:") == 1


@pytest.mark.parametrize(
    ("call", "type"),
    [
        ("double(1)", "INT"),
        ("double('a')", "STRING"),
        ("double('a', 3)", "STRING"),
        ("double(CAST(1 AS TINYINT))", "INT"),
        ("double(NULL)", "INT"),
        ("sign('a')", "STRING"),
        ("sign(1)", "DOUBLE"),
        ("sign(1, 2)", "DOUBLE"),
        ("default_database.double('a')", "STRING"),
    ],
)
def test_the_signature_counts_that_the_arguments_fit_best(folder: Path, call: str, type: str) -> None:
    made = "".join(f"CREATE FUNCTION {n} AS 'udfs_of_test.{n}' LANGUAGE PYTHON;\n" for n in ("double", "sign"))
    (sink,) = plan_of(f"{made}SELECT {call} AS x;", folder).sinks
    assert str(sink.schema.types[0]) == type


def test_a_table_function_has_the_columns_of_its_signature(folder: Path) -> None:
    made = "CREATE FUNCTION parts AS 'udfs_of_test.parts' LANGUAGE PYTHON;\n"
    text = f"{made}SELECT * FROM LATERAL TABLE(parts(1)); SELECT * FROM LATERAL TABLE(parts('ab')) AS p (c, at);"
    assert [s.schema.names for s in plan_of(text, folder).sinks] == [("n",), ("c", "at")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT double(TRUE)", "double does not take (BOOLEAN)"),
        ("SELECT double()", "double takes 1 or 2 arguments, 0 given"),
        ("SELECT double(1, 2)", "argument 1 of double must be STRING, this is INT"),
        (
            "CREATE FUNCTION u AS 'udfs_of_test.unclear' LANGUAGE PYTHON",
            "several signatures, and the arguments of one are not",
        ),
    ],
)
def test_calls_that_fit_no_signature_are_said_what_fits(folder: Path, text: str, message: str) -> None:
    made = "CREATE FUNCTION double AS 'udfs_of_test.double' LANGUAGE PYTHON;\n"
    assert message in problems(f"{made}{text};", folder)
