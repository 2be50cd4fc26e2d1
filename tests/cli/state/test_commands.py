"""`flowrun state list|show|diff|query` as users see them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from flowrun.cli.console import report_failure
from flowrun.cli.state.group import state
from flowrun.core.elements import CheckpointKind
from tests.state_folders import Names, ShopFolder

MANY = {f"user-{i}": i for i in range(1000)}


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> object:
        return json.loads(self.out)


def run(*arguments: object, capsys: pytest.CaptureFixture[str] | None = None) -> Ran:
    """Run `flowrun state …`; failures end as they do on the command line."""
    result = CliRunner().invoke(state, [str(a) for a in arguments], obj={"traceback": False})
    if result.exception is None or isinstance(result.exception, SystemExit):
        return Ran(result.exit_code, result.stdout, result.stderr)
    code = report_failure(result.exception, show_traceback=False)
    said = capsys.readouterr().err if capsys is not None else str(result.exception)
    return Ran(code, result.stdout, said)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ShopFolder]:
    with ShopFolder(tmp_path / "state") as shop_folder:
        yield shop_folder


def plain(text: str, replaced: Mapping[str, str]) -> str:
    """Output with what differs from run to run replaced: paths, and sizes of files."""
    for given, name in replaced.items():
        text = text.replace(given, name)
    return re.sub(r"\d+(\.\d)? [kM]?B", "N B", re.sub(r" +", " ", text))


# ---- list


def test_list_shows_number_kind_time_sizes_and_what_would_be_resumed(folder: ShopFolder, tmp_path: Path) -> None:
    folder.take(MANY)
    folder.take(MANY, unaligned=True)
    folder.take({}, kind=CheckpointKind.SAVEPOINT, directory=tmp_path / "kept", drained=True)
    (folder.directory / "shop" / "chk-9").mkdir()
    shown = plain(run("list", tmp_path / "state").out, {str(tmp_path): "TMP"})
    assert shown == (
        "TMP/state/shop (shop)\n"
        " NUMBER KIND TAKEN SIZE WRITTEN DURATION BARRIERS RUN STATE FOLDER\n"
        " 1 checkpoint 2023-11-14 22:13:20Z N B N B 250 ms aligned 0a1b2c3d complete chk-1\n"
        " 2 checkpoint 2023-11-14 22:13:20Z N B N B 250 ms unaligned 0a1b2c3d complete, resumed from chk-2\n"
        " 9 incomplete chk-9\n"
    )
    kept = plain(run("list", tmp_path / "kept").out, {str(tmp_path): "TMP"})
    assert (
        " 3 savepoint 2023-11-14 22:13:20Z N B N B 250 ms aligned, drained 0a1b2c3d complete savepoint-shop-3\n" in kept
    )


def test_list_as_json_has_every_number(folder: ShopFolder) -> None:
    folder.take(MANY)
    for arguments in (("--json",), ("--format", "json")):
        (job,) = run("list", folder.directory, *arguments).json  # type: ignore[misc]
        (listed,) = job["snapshots"]
        assert job["job"] == "shop"
        assert (listed["number"], listed["state"], listed["resumed"], listed["kind"]) == (
            1,
            "complete",
            True,
            "checkpoint",
        )
        assert (listed["duration_ms"], listed["unaligned"]) == (250, False)
        assert listed["state_bytes"] == listed["written_bytes"] > 0


def test_list_marks_a_damaged_checkpoint_and_one_of_a_newer_format(folder: ShopFolder) -> None:
    one, two = folder.take(MANY), folder.take(MANY)
    folder.take(MANY)
    (one / "_metadata.json").write_bytes((one / "_metadata.json").read_bytes()[:200])
    text = (two / "_metadata.json").read_text()
    (two / "_metadata.json").write_text(re.sub(r'"format_version": ?1\b', '"format_version": 99', text))
    ran = run("list", folder.directory)
    assert ran.code == 0
    assert len(re.findall(r" unreadable +chk-[12]\n", ran.out)) == 2
    assert "99" in next(line for line in ran.out.splitlines() if "unreadable:" in line and "chk-2" in line)
    assert "complete, resumed from" in ran.out


def test_list_of_nothing_is_wrong_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run("list", tmp_path / "nowhere", capsys=capsys)
    assert ran.code == 2
    assert "there is no folder" in ran.err


# ---- show


def test_show_names_tables_positions_and_pending_commits(folder: ShopFolder, tmp_path: Path) -> None:
    names = Names()
    names.add({"ann": "Ann"})
    folder.take(MANY, names)
    names.add({"bob": "Bob"})
    path = folder.take(MANY, names, read_to=512, pending=["part-0-c1"])
    shown = plain(run("show", path).out, {str(tmp_path): "TMP"})
    assert re.sub(r"id [0-9a-f]{8}", "id X", shown) == (
        "checkpoint 2 of 'shop': TMP/state/shop/chk-2\n"
        " taken 2023-11-14 22:13:20Z in 250 ms, aligned, by flowrun 0.1\n"
        " N B of files, N B written by itself; run 0a1b2c3d-0000-0000-0000-000000000000\n"
        " pipeline: made in Python, give its program to resume\n"
        "\n"
        "orders: uid orders, parallelism 2, max parallelism 128, id X\n"
        " TABLE KIND ROWS SIZE FILES KEY GROUPS\n"
        " splits operator, split 1\n"
        ' split orders.json in subtask 0: {"offset": 512}, event time 2023-11-14 22:13:20Z\n'
        ' splits to come: {"splits": []}\n'
        "\n"
        "per_user: uid per_user, parallelism 2, max parallelism 128, id X\n"
        " TABLE KIND ROWS SIZE FILES KEY GROUPS\n"
        " totals keyed 1000 N B 2 128 of 128, median 8, most 17\n"
        " names keyed, log ≤ 2 N B 2 (1 of earlier) 2 of 128, median 0, most 1\n"
        "\n"
        "out: uid out, parallelism 2, max parallelism 128, id X\n"
        " TABLE KIND ROWS SIZE FILES KEY GROUPS\n"
        " committables operator, split 1\n"
        ' to commit: part-0-c1, of checkpoint 7, {"path": "part-0"}\n'
    )


def test_show_of_one_operator_lists_its_columns(folder: ShopFolder) -> None:
    path = folder.take({"ann": 1})
    shown = run("show", path, "--operator", "per_user").out
    assert "    user_id string  key\n    n int64\n    total decimal128(10, 2)\n" in shown
    assert "orders" not in shown


def test_show_suggests_operators(folder: ShopFolder, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run("show", folder.take({"ann": 1}), "--operator", "per_usr", capsys=capsys)
    assert ran.code == 2
    assert "did you mean 'per_user'?" in ran.err


def test_show_as_json(folder: ShopFolder) -> None:
    shown = run("show", folder.take(MANY), "--json").json
    assert isinstance(shown, dict)
    per_user = next(o for o in shown["operators"] if o["name"] == "per_user")
    (table,) = per_user["tables"]
    assert (table["name"], table["rows"], table["exact"], table["files"]) == ("totals", 1000, True, 2)
    assert table["key_groups"]["filled"] == 128
    assert next(o for o in shown["operators"] if o["name"] == "orders")["positions"][0]["position"] == {"offset": 100}


def test_show_verify_reads_every_file(folder: ShopFolder) -> None:
    path = folder.take(MANY)
    ran = run("show", path, "--verify")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "all files are as they were written")
    file = next(path.glob("*totals*.parquet"))
    content = bytearray(file.read_bytes())
    content[50] ^= 1
    file.write_bytes(content)
    ran = run("show", path, "--verify")
    assert ran.code == 1
    assert f"damaged: the state file '{file}' is altered" in ran.out
    shown = run("show", path, "--verify", "--json").json
    assert isinstance(shown, dict)
    assert len(shown["damaged"]) == 1


def test_show_takes_the_newest_of_a_folder(folder: ShopFolder) -> None:
    folder.take({"ann": 1})
    folder.take({"ann": 1})
    assert run("show", folder.directory).out.startswith("checkpoint 2 of 'shop'")


# ---- diff


def test_diff_counts_and_shows_samples(folder: ShopFolder, tmp_path: Path) -> None:
    one = folder.take({**MANY, "gone": 1}, read_to=1)
    two = folder.take({**MANY, "user-5": 77, "new": 3}, read_to=2)
    shown = plain(run("diff", one, two, "--sample", "3").out, {str(tmp_path): "TMP"})
    assert shown.startswith(
        "- TMP/state/shop/chk-1\n"
        "+ TMP/state/shop/chk-2\n"
        "TABLE ROWS ADDED REMOVED KEYS ADDED KEYS REMOVED KEYS CHANGED\n"
    )
    assert "per_user.totals 1001 2 2 1 1 1\n" in shown
    assert "orders.splits 1 1 1 0 0 1\n" in shown
    assert "per_user.totals, by user_id\n user_id __key_group n total\n" in shown
    assert "… 1 more rows differ (--sample N shows more)" in shown


def test_diff_as_json(folder: ShopFolder) -> None:
    one, two = folder.take({"ann": 1}), folder.take({"ann": 2})
    shown = run("diff", one, two, "--json").json
    assert isinstance(shown, dict)
    totals = next(t for t in shown["tables"] if t["table"] == "per_user.totals")
    assert (totals["equal"], totals["keys_changed"], totals["rows_added"]) == (False, 1, 1)
    assert [(r["__change"], r["n"], r["total"]) for r in totals["sample"]] == [("-", 1, "0.50"), ("+", 2, "1.00")]


# ---- query


def test_query_prints_a_table(folder: ShopFolder) -> None:
    path = folder.take({"ann": 1, "bob": 12})
    ran = run("query", path, "SELECT user_id, n, total FROM per_user ORDER BY n")
    assert ran.out == "user_id   n  total\nann       1   0.50\nbob      12   6.00\n"


def test_query_writes_csv_json_and_parquet(folder: ShopFolder, tmp_path: Path) -> None:
    path = folder.take({"ann": 1, "bob": 12})
    sql = "SELECT user_id, total, [n, n] AS ns FROM per_user ORDER BY n"
    assert run("query", path, sql, "--format", "csv").out == (
        '"user_id","total","ns"\n"ann",0.50,"[1, 1]"\n"bob",6.00,"[12, 12]"\n'
    )
    assert run("query", path, sql, "--format", "json").json == [
        {"user_id": "ann", "total": "0.50", "ns": [1, 1]},
        {"user_id": "bob", "total": "6.00", "ns": [12, 12]},
    ]
    for name in ("rows.parquet", "rows.csv", "rows.json", "rows.txt"):
        assert run("query", path, sql, "-o", tmp_path / name).code == 0
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 2
    assert json.loads((tmp_path / "rows.json").read_text())[0]["user_id"] == "ann"
    assert (tmp_path / "rows.txt").read_text().startswith("user_id  total  ns\n")


def test_query_refuses_parquet_on_the_terminal(folder: ShopFolder) -> None:
    ran = run("query", folder.take({"ann": 1}), "SELECT 1", "--format", "parquet")
    assert ran.code == 2
    assert "add -o FILE" in ran.err


def test_wrong_sql_is_wrong_input_with_a_caret(folder: ShopFolder, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder.take({"ann": 1})
    ran = run("query", path, "SELECT nope FROM per_user", capsys=capsys)
    assert ran.code == 2
    assert "LINE 1: SELECT nope FROM per_user\n               ^" in ran.err
    ran = run("query", path, "SELECT * FROM per_usr", capsys=capsys)
    assert "Table with name per_usr does not exist" in ran.err
    assert "did you mean 'per_user'" in ran.err


def test_a_damaged_file_is_a_failure_that_names_it(folder: ShopFolder, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder.take(MANY)
    file = next(path.glob("*totals*.parquet"))
    file.write_bytes(file.read_bytes()[:-9])
    ran = run("query", path, "FROM per_user", capsys=capsys)
    assert ran.code == 1
    assert f"the state file '{file}' is truncated" in ran.err


def test_a_damaged_checkpoint_is_wrong_input_and_another_is_offered(
    folder: ShopFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.take(MANY)
    two = folder.take(MANY)
    (two / "_metadata.json").write_text("{")
    for command in (("show", two), ("query", two, "SELECT 1"), ("diff", two, two)):
        ran = run(*command, capsys=capsys)
        assert ran.code == 2
        assert "chk-1" in ran.err
