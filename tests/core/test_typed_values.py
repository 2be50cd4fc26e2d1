"""Records that many threads ask for at once, for the first time."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from flowrun.core.record import record
from flowrun.core.typed_values import to_kind


@record
class Point:
    x: int
    name: str | None = None


def test_a_record_from_what_json_has() -> None:
    assert to_kind({"x": 1}, Point) == Point(1)
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int`, got `str` - at `\$.x`"):
        to_kind({"x": "1"}, Point)


THREADS_THAT_BEGIN_AT_ONCE = """
import sys, threading
from dataclasses import field, make_dataclass

from flowrun.core.typed_values import to_kind

sys.setswitchinterval(1e-6)
for number in range(40):
    inner = [make_dataclass(f"Inner{i}", [(f"x{n}", "int | None", field(default=None)) for n in range(20)]) for i in range(10)]
    outer = make_dataclass("Outer", [(f"y{i}", kind, field(default_factory=kind)) for i, kind in enumerate(inner)])
    begin = threading.Barrier(8)

    def ask():
        begin.wait()
        to_kind({"y0": {"x0": 1}}, outer)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("done")
"""


def test_threads_that_begin_at_once_do_not_end_the_process() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", THREADS_THAT_BEGIN_AT_ONCE], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
