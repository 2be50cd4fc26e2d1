"""A project in which something is broken: each command says it once, with its place and a remedy, and exits with 2; `dev` goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command
from tests.end_to_end.test_dev import FUNCTION, PIPELINE, TEST, Session

Edit = Callable[[], object]


def write(name: str, text: str | bytes) -> Edit:
    return lambda: Path(name).write_bytes(text.encode() if isinstance(text, str) else text)


def a_folder_instead(name: str) -> Edit:
    def edit() -> None:
        Path(name).unlink()
        Path(name).mkdir()

    return edit


BROKEN: dict[str, tuple[Edit, str, str]] = {
    "YAML that ends too soon": (write("orders.yaml", "name: orders\nsources: {"), "orders.yaml:2:", "orders.yaml:2:"),
    "YAML with a tab": (
        write("orders.yaml", "name: orders\nsources:\n\torders: 1\n"),
        "orders.yaml:3:",
        "orders.yaml:3:",
    ),
    "an empty pipeline": (write("orders.yaml", ""), "orders.yaml", "orders.yaml"),
    "no pipeline": (lambda: Path("orders.yaml").unlink(), "'orders.yaml'", "there is no pipeline 'orders.yaml'"),
    "a pipeline that is no text": (
        write("orders.yaml", b"name: \xff\xfe"),
        "is not UTF-8 text",
        "is not UTF-8 text",
    ),
    "a folder called like the pipeline": (a_folder_instead("orders.yaml"), "orders.yaml", "orders.yaml"),
    "a module that is not there": (
        write("orders.yaml", PIPELINE.replace("prices:double", "price:double")),
        "there is no module 'price'",
        "there is no module 'price'",
    ),
    "a function that is not there": (
        write("orders.yaml", PIPELINE.replace("prices:double", "prices:doubel")),
        "has no 'doubel'",
        "has no 'doubel'",
    ),
    "a syntax error": (
        write("prices.py", "def double(rows:\n    return rows\n"),
        "failed: SyntaxError: '(' was never closed at",
        "prices.py:1\n",
    ),
    "a function that is no text": (write("prices.py", b"x = '\xff'\n"), "prices", "prices"),
    "bytes that are no program": (write("prices.py", b"x = 1\0"), "null bytes", "null bytes"),
    "a module that needs another": (
        write("prices.py", f"import nothing_there\n{FUNCTION}"),
        "needs the module 'nothing_there', which is not installed",
        "needs the module 'nothing_there', which is not installed",
    ),
    "a module that raises": (
        write("prices.py", f"{FUNCTION}\n1 / 0\n"),
        "importing prices failed: ZeroDivisionError",
        "importing prices failed: ZeroDivisionError",
    ),
    "a module that exits": (write("prices.py", "import sys\nsys.exit(3)\n"), "SystemExit", "SystemExit"),
    "a module that imports itself without end": (
        write("prices.py", "def f(): return f()\nf()\n"),
        "RecursionError",
        "RecursionError",
    ),
    "no functions": (lambda: Path("prices.py").unlink(), "there is no module 'prices'", "there is no module 'prices'"),
}
"""What is broken → (how, what `validate` says, what `test` says)."""

BROKEN_TESTS: dict[str, tuple[Edit, str]] = {
    "a sink that is called otherwise": (
        write("orders.yaml", PIPELINE.replace("  out:", "  output:")),
        "the pipeline has no sink 'out'\n",
    ),
    "a source that is called otherwise": (
        write("orders.yaml", PIPELINE.replace("  orders:", "  order:").replace("from: orders", "from: order")),
        "the pipeline reads no source 'orders'",
    ),
    "YAML that ends too soon": (write("orders.test.yaml", TEST + "  - {name: b"), "orders.test.yaml:8:"),
    "a test that is no text": (write("orders.test.yaml", b"pipeline: \xff"), "it is not UTF-8 text"),
    "a list": (write("orders.test.yaml", "- a\n- b\n"), "orders.test.yaml:1:1"),
    "nothing": (write("orders.test.yaml", ""), "the file has no tests"),
    "a column that is not there": (
        write("orders.test.yaml", TEST.replace("amount: 3", "amuont: 3")),
        "did you mean 'amount'?",
    ),
    "a value of another type": (
        write("orders.test.yaml", TEST.replace("amount: 3", "amount: x")),
        "cannot cast 'x' to DOUBLE",
    ),
    "rows in a file that is gone": (
        write("orders.test.yaml", TEST.replace("[{id: 1, amount: 3}]", "{file: rows.csv}")),
        "cannot read the rows in 'rows.csv': No such file or directory",
    ),
    "the functions of another pipeline": (
        write("orders.test.yaml", TEST + '    replace: {functions: {"prices:tripel": "prices:double"}}\n'),
        "the pipeline calls no function 'prices:tripel'",
    ),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    whole()
    return tmp_path


def whole() -> None:
    """Everything as it should be."""
    if Path("orders.yaml").is_dir():
        shutil.rmtree("orders.yaml")
    Path("orders.json").write_text('{"id": 1, "amount": 1.5}\n')
    Path("orders.yaml").write_text(PIPELINE)
    Path("prices.py").write_text(FUNCTION)
    Path("orders.test.yaml").write_text(TEST)


def is_said_once(text: str, said: str) -> None:
    assert said in text, text
    assert "Traceback" not in text
    assert text.count("error:") == 1, text


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_said_by_each_command(flowrun: Command, name: str) -> None:
    edit, by_validate, by_test = BROKEN[name]
    edit()
    for words, said in (
        (("validate", "orders.yaml"), by_validate),
        (("preview", "orders.yaml"), by_validate),
        (("test",), by_test),
    ):
        done = flowrun(*words)
        assert done.code == 2, done.out + done.err
        is_said_once(done.err, said)


CALLED = """\
name: orders
sources: {orders: {connector: filesystem, path: orders.json, format: json, schema: {id: BIGINT, amount: DOUBLE}}}
functions: {TWICE: "prices:twice"}
steps:
  priced: {from: orders, filter: Twice(amount) > 1, select: [id, "1 + TWICE(amount) AS amount"]}
sinks:
  out: {from: priced, connector: filesystem, path: out, format: json}
"""


def test_a_function_that_is_wrong_is_said_where_it_is_declared_and_not_where_it_is_called(flowrun: Command) -> None:
    Path("prices.py").write_text("def twice(x): return 2 * x\n")
    Path("orders.yaml").write_text(CALLED)
    done = flowrun("validate", "orders.yaml")
    assert done.code == 2
    is_said_once(done.err, "orders.yaml:3:20: error: 'prices:twice': the type of its result is not known")
    Path("orders.yaml").write_text(CALLED.replace("[id, ", "[di, "))
    said = flowrun("validate", "orders.yaml").err
    assert said.count("error:") == 2
    assert "column 'di' does not exist" in said


@pytest.mark.parametrize("name", BROKEN_TESTS)
def test_what_is_wrong_with_tests_is_said(flowrun: Command, name: str) -> None:
    edit, said = BROKEN_TESTS[name]
    edit()
    done = flowrun("test")
    assert done.code == 2, done.out + done.err
    is_said_once(done.err, said)


def test_nothing_of_a_broken_module_is_left(flowrun: Command) -> None:
    """The command runs in one process here: a module that was broken is imported anew."""
    Path("prices.py").write_text("def double(rows:\n")
    assert flowrun("test").code == 2
    whole()
    done = flowrun("test")
    assert done.code == 0, done.err


@pytest.mark.exhaustive
def test_dev_goes_on_after_each_of_them() -> None:
    session = Session()
    try:
        session.until("1 test passed")
        session.until("waiting for changes")
        for name in ("no pipeline", "a module that exits"):
            edit, said, _ = BROKEN[name]
            edit()
            shown = ""
            while said not in shown:
                shown += session.until("waiting for changes")
            assert "Traceback" not in shown
            whole()
            while "1 test passed" not in session.until("waiting for changes"):
                pass
    finally:
        session.kill()
