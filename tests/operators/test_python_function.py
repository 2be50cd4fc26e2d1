"""Users' Python functions: every form, and every way in which they go wrong."""

import pickle
import textwrap

import pyarrow as pa
import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, DOUBLE, INT, STRING
from flowrun.errors import DataError, PipelineError
from flowrun.operators.factories import PythonFunctionFactory
from flowrun.operators.function_loading import load_function
from flowrun.operators.function_recipe import FunctionRecipe
from flowrun.testing import OperatorHarness

IN = Schema.of(id=BIGINT, name=STRING)
OUT = Schema.of(id=BIGINT, length=BIGINT)


@pytest.fixture
def module(tmp_path):
    """Writes a user's module; gives (module name, search path)."""
    written = 0

    def write(text, name=None):
        nonlocal written
        written += 1
        name = name or f"user_functions_{tmp_path.name.replace('-', '_')}_{written}"
        (tmp_path / f"{name}.py").write_text(
            "import pyarrow as pa\nimport pyarrow.compute as pc\n" + textwrap.dedent(text)
        )
        return name, (str(tmp_path),)

    return write


@pytest.fixture
def harness(module):
    def make(text, function="f", *, output=OUT, flat=False, row=False):
        name, path = module(text)
        recipe = FunctionRecipe(f"{name}:{function}", search_path=path)
        factory = PythonFunctionFactory(recipe, IN, output, flat, row, "clean")
        return OperatorHarness(pickle.loads(pickle.dumps(factory)), schema=IN)

    return make


ROWS = {"id": [1, 2, 3], "name": ["a", "bb", None]}


def failure(harness, rows=ROWS, timestamps=None):
    with pytest.raises(DataError) as caught:
        harness.push(rows, timestamps)
    assert harness.elements == []
    return caught.value


def test_a_batch_map(harness):
    h = harness("""
        def f(batch):
            return pa.record_batch({"length": pc.utf8_length(batch["name"]), "id": batch["id"]})
    """)
    h.push(ROWS, [10, 20, 30], row_kinds=[0, 0, 3])
    assert h.rows() == [(1, 1), (2, 2), (3, None)], "columns are put in order, INT is widened"
    assert h.timestamps() == [10, 20, 30]
    assert h.changes()[2][0] == "-D"


def test_a_table_will_do(harness):
    h = harness("def f(batch): return pa.table({'id': batch['id'], 'length': batch['id']})")
    h.push(ROWS)
    assert h.rows() == [(1, 1), (2, 2), (3, 3)]


def test_a_map_must_not_change_the_number_of_rows(harness):
    h = harness("def f(batch): return pa.record_batch({'id': batch['id'], 'length': batch['id']}).slice(1)")
    error = failure(h)
    assert "got 3 rows and returned 2" in str(error)
    assert "flat_map" in str(error)


def test_a_flat_batch_function_says_parents(harness):
    h = harness(
        """
        def f(batch):
            twice = [0, 0, 2]
            return pa.record_batch({"id": batch["id"].take(pa.array(twice)), "length": [7, 8, 9]}), twice
    """,
        flat=True,
    )
    h.push(ROWS, [10, 20, 30])
    assert h.rows() == [(1, 7), (1, 8), (3, 9)]
    assert h.timestamps() == [10, 10, 30]


def test_a_flat_batch_function_without_parents(harness):
    text = """
        def f(batch):
            return pa.record_batch({"id": batch["id"], "length": batch["id"]}).slice(2 if batch["id"][0].as_py() == 1 else 0)
    """
    h = harness(text, flat=True)
    h.push(ROWS)
    assert h.rows() == [(3, 3)], "fine without event time"
    h.push({"id": [5], "name": ["x"]}, [70])
    assert h.timestamps() == [None, 70], "and with as many rows as came in"
    h = harness(text, flat=True)
    error = failure(h, timestamps=[10, 20, 30])
    assert "without saying which rows they came from" in str(error)
    assert "(batch, parents)" in str(error)


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ("[0, 1]", "parents must be 3 integers"),
        ("[0.5, 1, 2]", "parents must be 3 integers"),
        ("[0, 1, 3]", r"parents\[2\] is 3, but the input rows are 0 to 2"),
        ("[0, -1, 1]", r"parents\[1\] is -1"),
    ],
)
def test_wrong_parents(harness, parents, message):
    h = harness(
        f"def f(batch): return pa.record_batch({{'id': batch['id'], 'length': batch['id']}}), {parents}", flat=True
    )
    with pytest.raises(DataError, match=message):
        h.push(ROWS, [1, 2, 3])


def test_no_rows_at_all(harness):
    h = harness(
        "def f(batch): return pa.record_batch({'id': batch['id'], 'length': batch['id']}).slice(3), []", flat=True
    )
    h.push(ROWS, [1, 2, 3])
    assert h.elements == []


def test_a_row_map(harness):
    h = harness("def f(row): return {'id': row['id'] * 10, 'length': row['name'] and len(row['name'])}", row=True)
    h.push(ROWS, [10, 20, 30])
    assert h.rows() == [(10, 1), (20, 2), (30, None)]
    assert h.timestamps() == [10, 20, 30]


def test_a_row_flat_map_keeps_the_time_of_the_row(harness):
    h = harness(
        """
        def f(row):
            for n in range(row["id"] - 1):
                yield {"id": row["id"], "length": n}
    """,
        row=True,
        flat=True,
    )
    h.push(ROWS, [10, 20, 30], row_kinds=[0, 0, 3])
    assert h.changes() == [("+I", (2, 0)), ("-D", (3, 0)), ("-D", (3, 1))]
    assert h.timestamps() == [20, 30, 30]


def test_a_class_is_instantiated_opened_and_closed(harness, tmp_path):
    log = tmp_path / "log"
    h = harness(
        f"""
        class F:
            def open(self): self.log = open({str(log)!r}, "a"); self.log.write("open ")
            def close(self): self.log.write("close "); self.log.close()
            def __call__(self, batch):
                self.log.write("call ")
                return pa.record_batch({{"id": batch["id"], "length": batch["id"]}})
    """,
        "F",
    )
    h.push(ROWS)
    h.close()
    h.operator.close()
    assert log.read_text() == "open call close "


@pytest.mark.parametrize("method", ["open", "close"])
def test_a_class_whose_open_or_close_raises_is_named(harness, method):
    text = f"class F:\n    def {method}(self): raise OSError('no disk')\n    def __call__(self, batch): return batch"
    with pytest.raises(DataError, match=rf":F' of 'clean': {method}\(\) raised OSError: no disk at .*\.py:4"):
        harness(text, "F", output=IN).operator.close()


def test_a_raising_batch_function(harness):
    h = harness("def f(batch):\n    raise KeyError('price')")
    error = failure(h)
    assert error.row is None
    for part in (":f' of 'clean' raised KeyError: 'price'", ".py:4", "3 rows and begins with {id: 1, name: 'a'}"):
        assert part in str(error)


def test_a_raising_row_function_names_the_row(harness):
    h = harness("def f(row): return {'id': row['id'], 'length': len(row['name'])}", row=True)
    error = failure(h)
    assert error.row == 2
    assert "{id: 3, name: NULL}" in str(error)
    assert "TypeError" in str(error)


def test_a_generator_that_raises_names_the_row(harness):
    h = harness("def f(row):\n    yield {'id': row['id'], 'length': 1 // (2 - row['id'])}", row=True, flat=True)
    assert failure(h).row == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(batch): return None", "must return a pa.RecordBatch, got nothing"),
        ("def f(batch): return [1]", "must return a pa.RecordBatch, got builtins.list"),
        ("def f(batch): return batch", "without the column 'length' and with the undeclared column 'name'"),
        (
            "def f(batch): return pa.record_batch({'id': batch['id']})",
            "without the column 'length'; expected id, length",
        ),
        ("def f(batch): return pa.record_batch({'id': batch['id'], 'lenght': batch['id']})", "did you mean 'length'"),
        (
            "def f(batch): return pa.record_batch({'id': batch['id'], 'length': batch['name']})",
            r"column 'length' is BIGINT \(Arrow int64\), got Arrow string",
        ),
        (
            "def f(batch): return pa.record_batch({'id': batch['id'], 'length': pa.array([1.0, 2.5, 3.0])})",
            "column 'length' is BIGINT .* values that do not fit: .*2.5",
        ),
        (
            "def f(batch): return pa.record_batch([batch['id'], batch['id']], ['id', 'id'])",
            "column 'id' more than once",
        ),
    ],
)
def test_wrong_results_of_batch_functions(harness, text, message):
    with pytest.raises(DataError, match=message):
        harness(text).push(ROWS)


@pytest.mark.parametrize(
    ("text", "flat", "row", "message"),
    [
        ("def f(row): return 5", False, 0, "must return a dict, got builtins.int"),
        ("def f(row): return {'id': 1}", False, 0, "without the column 'length'"),
        (
            "def f(row): return {'id': 1, 'lengt': 2} if row['id'] == 2 else {'id': 1, 'length': 2}",
            False,
            1,
            "did you mean",
        ),
        (
            "def f(row): return {'id': 1, 'length': 'x' if row['id'] == 3 else 1}",
            False,
            2,
            "'length' is BIGINT, got 'x' of type str",
        ),
        ("def f(row): return {'id': 1, 'length': 1}", True, 0, "must return an iterable of dicts, got builtins.dict"),
        ("def f(row): return [{'id': 2**70, 'length': 1}] * (row['id'] // 2)", True, 1, "'id' is BIGINT"),
        ("def f(row): return [7]", True, 0, "must return an iterable of dicts, got builtins.int"),
    ],
)
def test_wrong_results_of_row_functions(harness, text, flat, row, message):
    h = harness(text, flat=flat, row=True)
    error = failure(h)
    assert error.row == row
    assert message in str(error)


def test_types_are_cast_when_nothing_is_lost(harness):
    h = harness(
        """
        def f(batch):
            return pa.record_batch({
                "small": pa.array([1, 2, 3], pa.int64()), "text": pa.array(["a", "b", "c"]).dictionary_encode(),
                "number": pa.array([1, 2, 3]), "nothing": pa.nulls(3)})
    """,
        output=Schema.of(small=INT, text=STRING, number=DOUBLE, nothing=STRING),
    )
    h.push(ROWS)
    assert h.rows()[0] == (1, "a", 1.0, None)
    assert h.elements[0].columns.schema.types == [pa.int32(), pa.string(), pa.float64(), pa.string()]


@pytest.mark.parametrize(
    ("reference", "message", "hint"),
    [
        ("functions.clean", "not a reference to a function", "write module:function"),
        ("a b:c", "not a reference to a function", "write module:function"),
        ("no_such_module_xyz:f", "there is no module 'no_such_module_xyz'", "beside the pipeline"),
        ("math:sqtr", r"module math .* has no 'sqtr'", "did you mean 'sqrt'"),
        ("math:pi", "is a float, not a function", "name a function"),
        ("os.path:join", None, None),
    ],
)
def test_references_that_lead_nowhere(reference, message, hint):
    if message is None:
        assert load_function(reference)("a") == "a"
        return
    with pytest.raises(PipelineError, match=message) as caught:
        load_function(reference)
    assert hint in caught.value.diagnostics[0].hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(: pass", r"importing .* failed: SyntaxError.* at .*\.py:3"),
        ("raise RuntimeError('no database')", r"failed: RuntimeError: no database at .*\.py:3"),
        ("import sys; sys.exit(3)", "failed: SystemExit: 3"),
        ("import no_such_package_abc", "needs the module 'no_such_package_abc', which is not installed"),
        ("def f(): pass", r"has the signature f\(\), but it is called with one argument"),
        ("async def f(row): return row", "is asynchronous, and nothing waits for what it gives"),
        ("async def f(row): yield row", "is asynchronous"),
        ("class f:\n    async def __call__(self, row): return row", "is asynchronous"),
        ("def f(a, b): pass", "missing a required argument: 'b'"),
        ("class f:\n    def __init__(self): self.x = 1 // 0", r"f\(\) failed: ZeroDivisionError"),
        ("class f: pass", "is a f, not a function"),
    ],
)
def test_modules_that_cannot_be_used(module, text, message):
    name, path = module(text)
    with pytest.raises(PipelineError, match=message):
        load_function(f"{name}:f", path)


def test_two_pipelines_may_use_one_module_name(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "shared_name_constants.py").write_text(f"VALUE = {folder!r}")
        (tmp_path / folder / "shared_name_functions.py").write_text(
            "from shared_name_constants import VALUE\ndef f(x): return VALUE"
        )
    for folder in ("one", "two", "one"):
        assert load_function("shared_name_functions:f", (str(tmp_path / folder),))(1) == folder
