"""`flowrun dead-letters`: letters are found where the sink wrote them, shown without harm, and replayed once, whatever is killed."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flowrun.runners.dead_letters.ledger import LetterLedger
from flowrun.runners.dead_letters.targets import FileTarget
from tests.end_to_end.conftest import Command
from tests.end_to_end.running import json_rows, run_file, written_files
from tests.end_to_end.test_dead_letter_sinks import POISON, SLOW, lines, pipeline

LEDGER = Path(".flowrun") / "dead-letters" / "shop"


class Shop:
    """A pipeline that has run, and its letters."""

    def __init__(self, folder: Path, format: str = "json") -> None:
        self.folder = folder
        (folder / "in").mkdir()
        (folder / "in" / "a.json").write_bytes(lines(20, 3))
        self.file = folder / "p.yaml"
        self.file.write_text(pipeline(folder, format=format))
        run_file(self.file)

    @property
    def ledger(self) -> Path:
        return self.folder / LEDGER / "replayed.jsonl"

    @property
    def replayed(self) -> list[bytes]:
        """The records of new files in the folder of the source, sorted."""
        files = [f for f in written_files(self.folder / "in") if f.name.startswith("dead-letters-")]
        return sorted(line for f in files for line in f.read_bytes().splitlines())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def ids(flowrun: Command, shop: Shop, *options: str) -> list[str]:
    listed = flowrun("dead-letters", "list", shop.file, "--json", *options)
    assert listed.code == 0, listed.err
    return [json.loads(line)["id"] for line in listed.out.splitlines()]


ALL = sorted(POISON + b"%d" % n for n in range(3))


def test_letters_are_listed_counted_and_chosen(flowrun: Command, shop: Shop) -> None:
    outcome = flowrun("dead-letters", "list", shop.file, "--limit", 1)
    assert outcome.code == 0, outcome.err
    assert re.search(r"source 'rows' +decoding +3\n", outcome.out)
    assert re.search(r"step 'divided' +expression +2\n", outcome.out)
    assert "5 letters, 1 shown, 0 replayed" in outcome.out
    assert len(ids(flowrun, shop, "--source", "rows")) == 3
    assert len(ids(flowrun, shop, "--kind", "expression")) == 2
    assert len(ids(flowrun, shop, "--since", "2020-01-01")) == 5
    assert ids(flowrun, shop, "--until", "2020-01-01") == []
    assert "no dead letters like these" in flowrun("dead-letters", "list", shop.file, "--source", "nobody").out


def test_a_letter_is_shown_and_obeyed_by_no_terminal(flowrun: Command, shop: Shop) -> None:
    letter, *_ = ids(flowrun, shop, "--kind", "decoding")
    for options in ((), ("--hex",), ("--json",)):
        outcome = flowrun("dead-letters", "show", shop.file, letter[:10], *options)
        assert outcome.code == 0, outcome.err
        assert all(c.isprintable() or c == "\n" for c in outcome.out)
        assert letter in outcome.out
    assert json.loads(outcome.out)["raw"] == base64.b64encode(POISON + b"0").decode()
    text = flowrun("dead-letters", "show", shop.file, letter).out
    assert r"no json \xff\u0000\u001b[2J" in text
    assert "6e 6f 20 6a 73 6f 6e 20 ff 00 1b" in flowrun("dead-letters", "show", shop.file, letter, "--hex").out
    row, *_ = ids(flowrun, shop, "--kind", "expression")
    assert '{"n":0,"d":0}' in flowrun("dead-letters", "show", shop.file, row).out


@SLOW
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "ffff0000ffff"), "there is no dead letter 'ffff0000ffff'"),
        (("show", "\x1b[2J"), r"\u001b[2J"),
        (("show", ""), "is the beginning of several ids"),
        (("replay",), "name the letters to replay, or say --all"),
        (("replay", "--all", "--kind", "key"), "--all replays records"),
        (("replay", "ffff0000ffff"), "there is no dead letter"),
    ],
)
def test_what_cannot_be_done_is_said(flowrun: Command, shop: Shop, arguments: tuple[str, ...], says: str) -> None:
    command, *rest = arguments
    outcome = flowrun("dead-letters", command, shop.file, *rest)
    assert outcome.code == 2
    assert says in outcome.err
    assert shop.replayed == []


@pytest.mark.parametrize("format", ["json", pytest.param("parquet", marks=SLOW), pytest.param("csv", marks=SLOW)])
def test_records_are_replayed_once_into_the_folder_of_their_source(
    flowrun: Command, tmp_path: Path, format: str
) -> None:
    shop = Shop(tmp_path, format)
    first, *_ = ids(flowrun, shop, "--kind", "decoding")
    assert "1 letter replayed to folder" in flowrun("dead-letters", "replay", shop.file, first).out
    assert len(shop.replayed) == 1
    again = flowrun("dead-letters", "replay", shop.file, "--all")
    assert (again.code, again.err) == (0, "")
    assert "2 letters replayed to folder" in again.out
    assert "1 letter replayed before: not again" in again.out
    assert shop.replayed == ALL
    assert flowrun("dead-letters", "replay", shop.file, "--all").out == "3 letters replayed before: not again\n"
    assert shop.replayed == ALL
    assert "3 replayed" in flowrun("dead-letters", "list", shop.file).out


@SLOW
def test_a_newer_version_reads_what_an_older_one_could_not(flowrun: Command, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    (tmp_path / "in" / "b.json").write_text('{"n": "7 of them", "d": 5}\n')
    text = shop.file.read_text().replace(f"path: {tmp_path}/out", f"path: {tmp_path}/out, sink.mode: append")
    shop.file.write_text(text.replace(f"path: {tmp_path}/dead", f"path: {tmp_path}/dead, sink.mode: append"))
    run_file(shop.file)
    (letter,) = (row["id"] for row in json_rows(tmp_path / "dead") if "7 of them" in str(row["text"]))
    newer = tmp_path / "newer.yaml"
    newer.write_text(
        shop.file.read_text().replace("n: INT", "n: STRING").replace(f"path: {tmp_path}/out", f"path: {tmp_path}/new")
    )
    (tmp_path / "in" / "a.json").unlink()
    (tmp_path / "in" / "b.json").unlink()
    assert flowrun("dead-letters", "replay", newer, letter).code == 0
    run_file(newer)
    assert json_rows(tmp_path / "new") == [{"n": "7 of them", "q": 20}]


@SLOW
def test_records_go_to_a_file_once(flowrun: Command, shop: Shop) -> None:
    target = shop.folder / "records"
    assert (
        f"3 letters replayed to file '{target}'"
        in flowrun("dead-letters", "replay", shop.file, "--all", "--to", target).out
    )
    assert sorted(target.read_bytes().splitlines()) == ALL
    refused = flowrun("dead-letters", "replay", shop.file, "--all", "--to", shop.folder / "more")
    assert "3 letters replayed before: not again" in refused.out
    assert not (shop.folder / "more").exists()
    assert shop.replayed == []
    assert [f.name for f in shop.folder.iterdir() if f.name.startswith(".records")] == []


@SLOW
def test_a_file_that_is_there_is_not_touched(flowrun: Command, shop: Shop) -> None:
    (shop.folder / "records").write_text("mine")
    outcome = flowrun("dead-letters", "replay", shop.file, "--all", "--to", shop.folder / "records")
    assert outcome.code == 2
    assert "is there already" in outcome.err
    assert (shop.folder / "records").read_text() == "mine"
    assert "3 letters replayed to folder" in flowrun("dead-letters", "replay", shop.file, "--all").out


@SLOW
def test_a_row_is_no_record(flowrun: Command, shop: Shop) -> None:
    row, *_ = ids(flowrun, shop, "--kind", "expression")
    outcome = flowrun("dead-letters", "replay", shop.file, row)
    assert outcome.code == 2
    assert "is a row (expression), not a record of a source" in outcome.err


def test_a_replay_that_was_killed_before_it_wrote_down_its_end_took_place(flowrun: Command, shop: Shop) -> None:
    flowrun("dead-letters", "replay", shop.file, "--all")
    begun, done, *_ = shop.ledger.read_bytes().splitlines(keepends=True)
    for left in (b"", done[:10]):
        shop.ledger.write_bytes(begun + left)
        outcome = flowrun("dead-letters", "replay", shop.file, "--all")
        assert "that was interrupted took place" in outcome.err
        assert outcome.out == "3 letters replayed before: not again\n"
        assert shop.replayed == ALL


@SLOW
def test_a_replay_that_was_killed_before_it_wrote_anything_did_not_take_place(flowrun: Command, shop: Shop) -> None:
    flowrun("dead-letters", "replay", shop.file, "--all")
    begun, *_ = shop.ledger.read_bytes().splitlines(keepends=True)
    shop.ledger.write_bytes(begun)
    (file,) = (f for f in written_files(shop.folder / "in") if f.name.startswith("dead-letters-"))
    file.rename(file.with_name(f".{file.stem}.inprogress"))
    outcome = flowrun("dead-letters", "replay", shop.file, "--all")
    assert "that was interrupted did not take place" in outcome.err
    assert "3 letters replayed to folder" in outcome.out
    assert shop.replayed == ALL
    assert [f.name for f in (shop.folder / "in").iterdir() if f.name.startswith(".")] == []


@SLOW
def test_two_replays_at_the_same_time_are_one(flowrun: Command, shop: Shop) -> None:
    with LetterLedger(shop.folder / LEDGER):
        outcome = flowrun("dead-letters", "replay", shop.file, "--all")
        assert outcome.code == 2
        assert "are being replayed already" in outcome.err
        assert flowrun("dead-letters", "list", shop.file).code == 0
    assert shop.replayed == []
    assert flowrun("dead-letters", "replay", shop.file, "--all").code == 0


@SLOW
def test_a_damaged_record_of_replays_is_refused(flowrun: Command, shop: Shop) -> None:
    flowrun("dead-letters", "replay", shop.file, "--all")
    shop.ledger.write_bytes(b'{"replay": 7, "state": "done"}\n' + shop.ledger.read_bytes())
    outcome = flowrun("dead-letters", "replay", shop.file, "--all")
    assert outcome.code == 2
    assert "replayed.jsonl, line 1" in outcome.err
    assert shop.replayed == ALL


@SLOW
def test_a_pipeline_without_dead_letters_has_none(flowrun: Command, shop: Shop) -> None:
    text = shop.file.read_text().replace("on_error: dead-letter", "on_error: skip")
    shop.file.write_text(text)
    outcome = flowrun("dead-letters", "list", shop.file)
    assert outcome.code == 2
    assert "keeps no dead letters" in outcome.err


@SLOW
def test_a_sink_that_cannot_be_read_says_so(flowrun: Command, shop: Shop) -> None:
    text = shop.file.read_text().replace(
        f"connector: filesystem, path: {shop.folder}/dead, format: json", "connector: print"
    )
    shop.file.write_text(text)
    outcome = flowrun("dead-letters", "list", shop.file)
    assert outcome.code == 2
    assert "connector 'print' is no source" in outcome.err


@pytest.mark.parametrize("name", ["records", "moved"])
def test_a_file_that_was_given_its_name_before_a_kill_was_written_wherever_it_is_now(tmp_path: Path, name: str) -> None:
    target = FileTarget(tmp_path / "records")
    plan = target.plan("0123456789ab")
    hidden = Path(plan["hidden"])
    hidden.write_bytes(b"record\n")
    (tmp_path / name).hardlink_to(hidden)
    assert target.took_place(plan)
    assert not hidden.exists()


def test_a_file_of_somebody_else_is_not_that_of_a_replay_that_was_killed(tmp_path: Path) -> None:
    target = FileTarget(tmp_path / "records")
    plan = target.plan("0123456789ab")
    Path(plan["hidden"]).write_bytes(b"record\n")
    (tmp_path / "records").write_bytes(b"another\n")
    assert not target.took_place(plan)
    assert (tmp_path / "records").read_bytes() == b"another\n"


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_a_damaged_file_keeps_those_of_others_from_nobody(flowrun: Command, tmp_path: Path, format: str) -> None:
    shop = Shop(tmp_path, format)
    damaged = tmp_path / "dead" / f"part-damaged.{format}"
    damaged.write_bytes(b'{"id": "a0f5')
    for words in (("list", shop.file), ("replay", shop.file, "--all")):
        outcome = flowrun("dead-letters", *words)
        assert outcome.code == 1
        assert outcome.err.startswith(f"error: dead letters in '{tmp_path / 'dead'}' cannot be read: "), outcome.err
        assert str(damaged) in outcome.err
        assert "move it out of the folder" in outcome.err
    assert shop.replayed == []
    damaged.rename(tmp_path / damaged.name)
    assert len(ids(flowrun, shop)) == 5
    assert "3 letters replayed" in flowrun("dead-letters", "replay", shop.file, "--all").out


DIE = """
import os, signal, sys
left = int(sys.argv.pop(1))
fsync = os.fsync
def dies(descriptor):
    global left
    fsync(descriptor)
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = dies
from flowrun.cli.main import main
main()
"""


@pytest.mark.soak
@pytest.mark.parametrize("to", [None, "records"])
def test_a_replay_that_is_killed_anywhere_takes_place_once(flowrun: Command, tmp_path: Path, to: str | None) -> None:
    shop = Shop(tmp_path)
    target = [] if to is None else ["--to", str(tmp_path / to)]
    command = [sys.executable, "-c", DIE]
    killed = 0
    written: list[bytes] = []
    for left in range(20):
        words = [str(left), "dead-letters", "replay", str(shop.file), "--all", *target]
        ended = subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, timeout=120, check=False)
        written = shop.replayed if to is None else lines_of(tmp_path / to)
        assert written in ([], ALL), ended.stderr
        if ended.returncode == 0:
            break
        assert ended.returncode == -9, ended.stderr
        killed += 1
    assert killed >= 2
    assert written == ALL
    again = flowrun("dead-letters", "replay", shop.file, "--all")
    assert again.out == "3 letters replayed before: not again\n"
    assert (shop.replayed == ALL) is (to is None)


def lines_of(path: Path) -> list[bytes]:
    return sorted(path.read_bytes().splitlines()) if path.exists() else []


KILLED = """
name: shop
settings:
  on_error: dead-letter
  dead_letters: {{sink: letters}}
  parallelism: 2
  batch_rows: 20
  checkpoint: {{interval: 20ms, dir: {folder}/state}}
sources:
  rows: {{connector: filesystem, path: {folder}/in, format: json, schema: {{n: INT, d: INT}}}}
sinks:
  out: {{from: rows, connector: filesystem, path: {folder}/out, format: json}}
  letters: {{connector: filesystem, path: {folder}/dead, format: json}}
"""


@pytest.mark.soak
def test_a_pipeline_that_is_killed_again_and_again_writes_each_letter_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(8):
        (tmp_path / "in" / f"{number}.json").write_bytes(lines(4000, 400))
    file = tmp_path / "p.yaml"
    file.write_text(KILLED.format(folder=tmp_path))
    words = ["run", str(file)]
    killed = 0
    while True:
        job = subprocess.Popen([sys.executable, "-m", "flowrun", *words], cwd=tmp_path, stderr=subprocess.PIPE)
        seen = set((tmp_path / "state").glob("*/chk-*"))
        while job.poll() is None and killed < 3:
            if len(set((tmp_path / "state").glob("*/chk-*")) - seen) >= 2:
                job.kill()
                break
        _, said = job.communicate()
        if job.returncode == 0:
            break
        assert job.returncode == -9, said
        killed += 1
        words = ["resume", "--from-savepoint", str(tmp_path / "state"), str(file)]
    assert killed >= 1
    letters = json_rows(tmp_path / "dead")
    assert len(letters) == len({letter["id"] for letter in letters}) == 8 * 400
    assert len(json_rows(tmp_path / "out")) == 8 * 4000
