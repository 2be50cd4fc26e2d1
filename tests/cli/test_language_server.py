"""The language server, as an editor speaks with it: over standard input and output, in the protocol's own messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """\
CREATE TABLE orders (order_id BIGINT, amount DOUBLE) WITH ('connector' = 'datagen', 'number-of-rows' = '5');
CREATE VIEW large AS SELECT order_id, amount FROM orders WHERE amount > 5;
SELECT '\N{WINKING FACE}', ABS(amount) FROM large;
"""
pytestmark = pytest.mark.exhaustive


class Editor:
    """Sends requests, and reads what comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "flowrun", "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
        )
        self._number = 0
        self._version = 0
        self.published: list[dict[str, Any]] = []
        self.capabilities = self.ask("initialize", processId=None, rootUri=folder.as_uri(), capabilities={})[
            "capabilities"
        ]
        self.tell("initialized")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        length = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        message: dict[str, Any] = json.loads(self._process.stdout.read(length))
        if message.get("method") == "textDocument/publishDiagnostics":
            self.published.append(message["params"])
        return message

    def ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, **_given(method, params)})
        while (message := self._receive()).get("id") != self._number or "method" in message:
            pass
        assert "error" not in message, message
        return message["result"]

    def tell(self, method: str, **params: Any) -> None:
        self._send({"method": method, **_given(method, params)})

    def uri(self, name: str) -> str:
        return name if name.startswith("untitled:") else (self._folder / name).as_uri()

    def open(self, name: str, text: str) -> list[dict[str, Any]]:
        self.begin(name, text)
        return self._problems()

    def begin(self, name: str, text: str) -> None:
        """Open a text, and do not wait for what is told of it."""
        self._version += 1
        document = {"uri": self.uri(name), "languageId": "sql", "version": self._version, "text": text}
        self.tell("textDocument/didOpen", textDocument=document)

    def change(self, name: str, text: str) -> list[dict[str, Any]]:
        self._version += 1
        document = {"uri": self.uri(name), "version": self._version}
        self.tell("textDocument/didChange", textDocument=document, contentChanges=[{"text": text}])
        return self._problems()

    def _problems(self) -> list[dict[str, Any]]:
        while not self.published or self.published[-1].get("version") != self._version:
            self._receive()
        problems: list[dict[str, Any]] = self.published[-1]["diagnostics"]
        return problems

    def at(self, method: str, name: str, line: int, character: int) -> Any:
        place = {"line": line, "character": character}
        return self.ask(f"textDocument/{method}", textDocument={"uri": self.uri(name)}, position=place)

    def close(self) -> int:
        self.ask("shutdown")
        self.tell("exit")
        return self._process.wait(30)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def _given(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {} if method in ("shutdown", "exit") else {"params": params}


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    made = Editor(tmp_path)
    yield made
    made.kill()


def test_a_script_from_its_first_error_to_the_end(editor: Editor) -> None:
    assert editor.capabilities["definitionProvider"]
    wrong = SCRIPT.replace("ABS(amount)", "ABS(amont)")
    [problem] = editor.open("job.sql", wrong)
    assert "column 'amont' does not exist" in problem["message"]
    assert "amount" in problem["message"]
    assert problem["severity"] == 1
    start, end = problem["range"]["start"], problem["range"]["end"]
    line = wrong.split("\n")[2].encode("utf-16-le")
    assert line[start["character"] * 2 : end["character"] * 2].decode("utf-16-le") == "amont"
    assert editor.change("job.sql", SCRIPT) == []
    place = len("SELECT '__', A")
    assert "ABS(" in editor.at("hover", "job.sql", 2, place)["contents"]["value"]
    column = len("SELECT '__', ABS(am")
    assert "amount DOUBLE" in editor.at("hover", "job.sql", 2, column)["contents"]["value"]
    declared = editor.at("definition", "job.sql", 2, len(SCRIPT.split("\n")[2]))
    assert declared["range"]["start"] == {"line": 1, "character": len("CREATE VIEW ")}
    assert editor.close() == 0


def test_completion_while_a_text_is_wrong(editor: Editor) -> None:
    """What was known of its last version without errors is still known."""
    assert editor.open("job.sql", SCRIPT) == []
    assert editor.change("job.sql", SCRIPT + "SELECT am FROM large")
    proposed = editor.at("completion", "job.sql", 3, len("SELECT am"))
    items = {item["label"]: item for item in (proposed["items"] if isinstance(proposed, dict) else proposed)}
    assert items["amount"]["detail"] == "DOUBLE"
    assert items["amount"]["textEdit"]["range"]["start"] == {"line": 3, "character": len("SELECT ")}
    proposed = editor.at("completion", "job.sql", 3, len("SELECT am FROM l"))
    labels = [item["label"] for item in (proposed["items"] if isinstance(proposed, dict) else proposed)]
    assert labels == ["large"]


def test_names_of_catalogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a catalog is asked, what is proposed is incomplete, so that the editor asks again."""
    info = tmp_path / "site" / "shop-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    target = "tests.frontend.sql.script.shop_catalog:CATALOG_TYPE"
    (info / "entry_points.txt").write_text(f"[flowrun.catalogs]\nshop = {target}\n")
    root = str(Path(__file__).parent.parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), root]))
    made = "CREATE CATALOG c WITH ('type' = 'shop');\n"
    editor = Editor(tmp_path)
    try:
        editor.open("job.sql", f"{made}SELECT o.pr FROM c.shop.orders AS o;\nSELECT * FROM c.shop.or")

        def labels(line: int, text: str) -> list[str]:
            while (proposed := editor.at("completion", "job.sql", line, len(text)))["isIncomplete"]:
                pass
            return [item["label"] for item in proposed["items"]]

        assert labels(2, "SELECT * FROM c.") == ["shop", "other"]
        assert labels(2, "SELECT * FROM c.shop.or") == ["orders"]
        assert labels(1, "SELECT o.pr") == ["price"]
        hovered = editor.at("hover", "job.sql", 1, len("SELECT o.pr FROM c.shop.or"))["contents"]["value"]
        assert "**c.shop.orders**" in hovered
        assert "price DECIMAL" in hovered
        editor.open("other.sql", f"{made}SELECT * FROM c.other.orders")
        assert (
            "buyer STRING" in editor.at("hover", "other.sql", 1, len("SELECT * FROM c.other.or"))["contents"]["value"]
        )
        assert editor.close() == 0
    finally:
        editor.kill()


def test_a_yaml_pipeline(editor: Editor) -> None:
    text = "name: x\nsources:\n  s: {connector: datagn}\nsinks:\n  o: {from: s, connector: blackhole}\n"
    problems = editor.open("job.yaml", text)
    assert any("datagn" in p["message"] and "datagen" in p["message"] for p in problems)
    proposed = editor.at("completion", "job.yaml", 2, len("  s: {connector: da"))
    labels = [item["label"] for item in (proposed["items"] if isinstance(proposed, dict) else proposed)]
    assert labels == ["datagen"]


MANY = SCRIPT + "\n".join(f"SELECT amont + {i} FROM large;" for i in range(600))
"""Takes half a second to look at on a fast machine."""


def test_what_was_found_of_an_older_text_is_not_told(editor: Editor) -> None:
    """It takes longer to look at the older one than at the one that is there by then."""
    editor.begin("job.sql", MANY)
    time.sleep(0.1)
    assert editor.change("job.sql", SCRIPT) == []
    assert editor.open("other.sql", MANY)
    assert [len(told["diagnostics"]) for told in editor.published if told["uri"].endswith("job.sql")] == [0]


def test_of_a_text_that_was_closed_while_it_was_looked_at_nothing_is_told(editor: Editor) -> None:
    editor.begin("job.sql", MANY)
    editor.tell("textDocument/didClose", textDocument={"uri": editor.uri("job.sql")})
    assert editor.open("other.sql", MANY)
    assert [len(told["diagnostics"]) for told in editor.published if told["uri"].endswith("job.sql")] == [0]


def test_what_modules_of_functions_print_and_ask_is_no_part_of_the_protocol(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import os, sys\nprint('Content-Length: 3')\nos.write(1, b'Content-Length: 5\\r\\n\\r\\n')\n"
        "os.system('echo child')\ndef f(n: int) -> int: return n\n"
    )
    (tmp_path / "asking.py").write_text("input('who?')\n")
    made = "CREATE FUNCTION f AS '{}.f' LANGUAGE PYTHON;\nSELECT f(1);"
    assert editor.open("noisy.sql", made.format("noisy")) == []
    (problem,) = editor.open("asking.sql", made.format("asking"))
    assert "importing asking failed: EOFError" in problem["message"]
    assert editor.close() == 0


def test_a_text_that_was_never_saved_is_in_the_language_that_the_editor_says(editor: Editor) -> None:
    (problem,) = editor.open("untitled:Untitled-1", SCRIPT.replace("amount)", "amont)"))
    assert "column 'amont' does not exist" in problem["message"]


def test_a_closed_text_has_no_problems(editor: Editor) -> None:
    assert editor.open("job.sql", "SELEC 1")
    editor.tell("textDocument/didClose", textDocument={"uri": editor.uri("job.sql")})
    editor.ask("shutdown")
    assert editor.published[-1] == {"uri": editor.uri("job.sql"), "diagnostics": []}
