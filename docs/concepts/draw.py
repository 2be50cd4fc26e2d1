"""Draws the pictures of docs/concepts, into docs/concepts/pictures. Run by `make docs`.

What can be computed is computed: watermarks by the rule of flowrun, key groups by its hash, tasks by compiling a pipeline of this repository.
Colours follow the system's light or dark mode.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

import pyarrow as pa

from flowrun.runners.compile import compile_pipeline
from flowrun.state.key_groups import key_group_range, key_groups

ROOT = Path(__file__).parents[2]
STYLE = """
text { font: 13px system-ui, "Segoe UI", "Liberation Sans", sans-serif; fill: #1f2a30 }
.small { font-size: 11px; fill: #52606a } .strong { font-weight: 600 } .middle { text-anchor: middle } .end { text-anchor: end }
.code { font-family: ui-monospace, "Liberation Mono", monospace; font-size: 12px }
.line { stroke: #6b7a85; fill: none } .faint { stroke: #d3dade; fill: none } .dashed { stroke-dasharray: 5 4 }
.box { fill: #e3f1ef; stroke: #00796b } .other { fill: #fdf1dc; stroke: #b26a00 } .plain { fill: #f1f4f5; stroke: #9aa7b0 }
.event { fill: #00796b } .late { fill: #c62828 } .latetext { fill: #c62828 } .mark { stroke: #b26a00; stroke-width: 2.5; fill: none }
.marktext { fill: #8a5200 } .band { fill: #00796b; fill-opacity: .07 } .band2 { fill: #00796b; fill-opacity: .14 }
@media (prefers-color-scheme: dark) {
text { fill: #e6ebee } .small { fill: #a9b6bf }
.line { stroke: #93a3ae } .faint { stroke: #3a474f }
.box { fill: #10332f; stroke: #4db6ac } .other { fill: #3d2b0b; stroke: #ffb74d } .plain { fill: #263138; stroke: #71818b }
.event { fill: #4db6ac } .late { fill: #ff8a80 } .latetext { fill: #ff8a80 } .mark { stroke: #ffb74d } .marktext { fill: #ffcc80 }
.band { fill: #4db6ac; fill-opacity: .10 } .band2 { fill: #4db6ac; fill-opacity: .20 }
}
"""


class Drawing:
    """An SVG in pixels, from the top left."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
            f"\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n"
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 8 4 0 8z" fill="#7d8c96"/></marker></defs>\n'
        )
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        self._parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str = "box", words: str = "", below: str = "") -> None:
        """A box with words in its middle, and smaller ones below them."""
        radius = 0 if kind.startswith("band") else 5
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" class="{kind}"/>')
        if words:
            self.text(x + width / 2, y + height / 2 + (-3 if below else 4), words, "middle")
        if below:
            self.text(x + width / 2, y + height / 2 + 13, below, "middle small")

    def dot(self, x: float, y: float, kind: str = "event") -> None:
        self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="5" class="{kind}"/>')

    def line(self, points: list[tuple[float, float]], kind: str = "line", arrow: bool = False) -> None:
        way = " ".join(f"{x:g},{y:g}" for x, y in points)
        head = ' marker-end="url(#head)"' if arrow else ""
        self._parts.append(f'<polyline points="{way}" class="{kind}"{head}/>')

    def svg(self) -> str:
        return self._head + "\n".join(self._parts) + "\n</svg>\n"


def watermark() -> Drawing:
    """Rows by arrival and event time, the watermark below them, and what it means for two windows."""
    times = [4, 12, 9, 21, 33, 27, 41, 30, 52, 47, 66, 58, 71, 62, 84, 55]
    delay, size = 10, 60
    d = Drawing(900, 400, "Rows in the order of arrival, with their event times and the watermark")
    left, top, width, height = 90.0, 40.0, 560.0, 310.0

    def x(arrival: float) -> float:
        return left + (arrival + 0.7) * width / len(times)

    def y(seconds: float) -> float:
        return top + height - seconds * height / 95

    d.box(left, y(size), width, y(0) - y(size), "band")
    d.box(left, top, width, y(size) - top, "band2")
    d.text(left + 8, y(size) + 18, "window 10:00:00 – 10:01:00", "small")
    d.text(left + 8, y(size) - 8, "window 10:01:00 – 10:02:00", "small")
    for seconds in range(0, 91, 30):
        d.line([(left - 5, y(seconds)), (left, y(seconds))])
        d.text(left - 10, y(seconds) + 4, f"10:{seconds // 60:02d}:{seconds % 60:02d}", "end small")
    d.line([(left, top), (left, y(0)), (left + width, y(0))])
    d.text(left + 8, y(0) + 18, "order of arrival →", "small")
    d.text(left - 75, top - 18, "event time", "small")
    mark, steps, fired = -float("inf"), [], None
    for arrival, time in enumerate(times):
        late = time < mark
        d.dot(x(arrival), y(time), "late" if late else "event")
        if late:
            dropped = mark >= size > time
            words = "late, and dropped" if dropped else "late, and still counted"
            d.text(x(arrival) + 4, y(time) + 22, words, "middle small latetext" if dropped else "small latetext")
        before, mark = mark, max(mark, time - delay)
        if before > 0:
            steps.append((x(arrival), y(before)))
        if mark > 0:
            steps.append((x(arrival), y(mark)))
        if before < size <= mark and fired is None:
            fired = x(arrival)
    steps.append((x(len(times) - 0.3), y(mark)))
    d.line(steps, "mark")
    d.text(left + width + 20, y(mark) + 4, "watermark: the highest", "marktext")
    d.text(left + width + 20, y(mark) + 20, f"time so far less {delay} s", "marktext")
    assert fired is not None
    d.line([(fired, y(0)), (fired, top)], "line dashed")
    d.text(fired, y(0) + 18, "here the first window fires", "middle small strong")
    d.dot(left + width + 20, top + 10)
    d.text(left + width + 32, top + 14, "a row in time", "small")
    d.dot(left + width + 20, top + 32, "late")
    d.text(left + width + 32, top + 36, "a row below the watermark", "small")
    return d


def splits() -> Drawing:
    """The watermark of a task is the lowest of its active inputs."""
    d = Drawing(760, 260, "Watermarks of three splits and of the task that reads them")
    left, scale = 150.0, 60.0
    rows = [("orders-0.json", 8.0, ""), ("orders-1.json", 5.0, ""), ("orders-2.json", 2.0, "idle for 30 s")]
    for number, (name, time, why) in enumerate(rows):
        y = 40 + number * 50.0
        d.text(left - 12, y + 5, name, "end code")
        d.box(left, y - 12, time * scale, 24, "plain" if why else "box", f"10:0{time:g}")
        if why:
            d.text(left + time * scale + 10, y + 5, why, "small")
    lowest = min(time for _, time, why in rows if not why)
    d.line([(left + lowest * scale, 15), (left + lowest * scale, 225)], "mark dashed")
    d.text(left - 12, 215, "the task", "end strong")
    d.box(left, 198, lowest * scale, 24, "other", f"10:0{lowest:g}")
    d.text(left + lowest * scale + 10, 215, "the lowest of those that are active", "small")
    return d


def keys() -> Drawing:
    """Keys → key groups → subtasks, at two parallelisms."""
    names = ["ann", "hal", "nils", "pam", "tom"]
    groups = key_groups([pa.array(names)], 128).tolist()
    d = Drawing(800, 330, "Keys, key groups and subtasks at parallelism 2 and 3")
    left, scale = 170.0, 4.7

    def x(group: float) -> float:
        return left + group * scale

    d.text(20, 45, "keys", "strong")
    d.text(20, 125, "128 key groups", "strong")
    for group in range(128):
        d.line([(x(group), 110), (x(group), 130)], "faint")
    d.line([(x(0), 110), (x(128), 110), (x(128), 130), (x(0), 130), (x(0), 110)])
    order = sorted(range(len(names)), key=groups.__getitem__)
    for place, index in enumerate(order):
        key_x = left + 55 + place * 120
        d.box(key_x - 34, 28, 68, 26, "other", names[index])
        d.line([(key_x, 54), (x(groups[index] + 0.5), 108)], "line", arrow=True)
        d.text(x(groups[index] + 0.5), 146, str(groups[index]), "middle small")
    for number, (parallelism, y) in enumerate(((2, 180.0), (3, 255.0))):
        d.text(20, y + 22, f"parallelism {parallelism}", "strong")
        for subtask in range(parallelism):
            held = key_group_range(subtask, parallelism, 128)
            kept = ", ".join(names[i] for i in order if held.start <= groups[i] < held.stop) or "none of these"
            d.box(x(held.start) + 2, y, (held.stop - held.start) * scale - 4, 44, "box", f"subtask {subtask + 1}: {kept}", f"groups {held.start} – {held.stop - 1}")
        if number == 0:
            d.line([(left + 64 * scale, 228), (left + 64 * scale, 250)], "line", arrow=True)
            d.text(left + 64 * scale + 10, 243, "rescaled: whole groups move, with the state of their keys", "small")
    return d


def barriers() -> Drawing:
    """A barrier goes through the job with the rows, and each operator writes its state when it passes."""
    d = Drawing(840, 330, "A checkpoint's barrier on its way through a job")
    for x, words, below in ((20, "source", "reads files"), (330, "window", "counts by user"), (640, "sink", "writes files")):
        d.box(x, 60, 150, 60, "box", words, below)
    for begin, end, rows, at in ((170, 330, 6, 3), (480, 640, 4, 1)):
        d.line([(begin, 90), (end, 90)], "line", arrow=True)
        step = (end - begin - 30) / rows
        for number in range(rows):
            x = begin + 16 + number * step
            if number == at:
                d.line([(x + 5, 68), (x + 5, 112)], "mark")
                d.text(x + 5, 58, "barrier 7", "middle small marktext")
            else:
                d.dot(x + 5, 90)
    d.text(252, 136, "rows of checkpoint 8 | of checkpoint 7", "middle small")
    d.box(20, 210, 770, 90, "plain")
    d.text(36, 232, "checkpoint 7, in the folder of checkpoints", "strong")
    for x, words, below in ((20, "position of each file", "orders-0.json: byte 51,200"), (330, "partial counts of open windows", "ann, 10:00: 3; bob, 10:00: 1"), (640, "files that are ready", "not yet to be seen")):
        d.text(x + 16, 262, words)
        d.text(x + 16, 282, below, "small")
        d.line([(x + 75, 120), (x + 75, 206)], "line dashed", arrow=True)
    d.text(108, 168, "when the barrier leaves", "small")
    d.text(418, 168, "when it passes", "small")
    d.text(728, 168, "when it arrives", "small")
    return d


def commits() -> Drawing:
    """What readers of the output see over checkpoints and a failure."""
    d = Drawing(890, 330, "Checkpoints, commits and a failure over time")
    left = 150.0
    d.text(20, 62, "rows read", "strong")
    d.text(20, 142, "written, hidden", "strong")
    d.text(20, 222, "to be seen", "strong")
    for y in (75, 155, 235):
        d.line([(left, y), (870, y)], "faint")
    d.line([(left, 275), (870, 275)], "line", arrow=True)
    d.text(870, 295, "time", "end small")
    for x, words, rows in ((left, "rows 1 – 100", "1 – 100"), (left + 180, "101 – 200", "101 – 200"), (left + 360, "201 – 240", "201 – 240")):
        width = 100 if rows == "201 – 240" else 172
        kind = "plain" if rows == "201 – 240" else "box"
        d.box(x, 40, width, 30, kind, words)
        d.box(x, 120, width, 30, kind, f"file {rows}")
    for number, x in ((6, left + 176), (7, left + 356)):
        d.line([(x, 25), (x, 275)], "mark dashed")
        d.text(x, 18, f"checkpoint {number} complete", "middle small marktext")
    d.box(left + 182, 200, 172, 30, "box", "1 – 100")
    d.box(left + 362, 200, 348, 30, "box", "1 – 200")
    fail = left + 464
    d.line([(fail - 9, 31), (fail + 9, 49)], "mark")
    d.line([(fail - 9, 49), (fail + 9, 31)], "mark")
    d.text(fail + 14, 36, "failure: back to checkpoint 7", "small latetext")
    d.text(fail + 8, 112, "its file is removed", "small latetext")
    d.box(fail + 60, 40, 186, 30, "box", "201 – 300, read again")
    d.box(fail + 60, 120, 186, 30, "box", "file 201 – 300")
    d.text(left, 296, "each row is there once, at every moment; no row of a failed attempt was ever to be seen", "small")
    return d


def tasks() -> Drawing:
    """A pipeline of this repository as plan, job graph and subtasks."""
    compiled = compile_pipeline(ROOT / "pipelines" / "orders_per_minute.yaml", {"SAMPLES": str(ROOT / "samples")}, {})
    vertices = compiled.job_graph.vertices
    names = [vertex.name for vertex in vertices]
    assert names == ["Source: orders -> paid -> per_minute (local)", "per_minute -> Sink: out"], names
    d = Drawing(900, 400, "A pipeline as its text, its job graph and its subtasks")
    d.text(20, 30, "the text", "strong")
    for number, (words, kind) in enumerate((("source orders", "plain"), ("step paid", "plain"), ("step per_minute", "plain"), ("sink out", "plain"))):
        d.box(20, 50 + number * 62, 150, 36, kind, words)
        if number:
            d.line([(95, 24 + number * 62), (95, 48 + number * 62)], "line", arrow=True)
    d.text(230, 30, "the job graph: two tasks", "strong")
    y = 50.0
    places = []
    for vertex in vertices:
        operators = vertex.name.split(" -> ")
        height = 24 + 34 * len(operators)
        d.box(230, y, 200, height, "other")
        for number, operator in enumerate(operators):
            d.box(242, y + 14 + number * 34, 176, 26, "plain", operator)
        places.append((y, height))
        y += height + 74
    d.line([(330, places[0][0] + places[0][1]), (330, places[1][0] - 2)], "mark", arrow=True)
    d.text(342, places[1][0] - 32, "by a hash of user_id", "small marktext")
    d.text(520, 30, f"their subtasks, at parallelism {vertices[0].parallelism}", "strong")
    middles: list[list[tuple[float, float]]] = []
    for vertex, (top, height) in zip(vertices, places, strict=True):
        row = []
        for subtask in range(vertex.parallelism):
            x = 520 + subtask * 190.0
            first, *rest = vertex.name.split(" -> ")
            d.box(x, top + height / 2 - 32, 176, 64, "box", f"{first} ({subtask + 1}/{vertex.parallelism})", " → ".join(["", *rest]).strip())
            row.append((x + 88, top + height / 2))
        middles.append(row)
    for x, from_y in middles[0]:
        for other, to_y in middles[1]:
            d.line([(x, from_y + 32), (other, to_y - 34)], "mark" if x == other else "mark dashed", arrow=True)
    return d


def changes() -> Drawing:
    """COUNT(*) by user: rows in, changes out, and the table that they come to."""
    d = Drawing(800, 330, "Rows that come in, changes that go out, and the table that they come to")
    for x, words in ((20, "rows of orders"), (250, "changes of the count"), (560, "the table after them")):
        d.text(x, 30, words, "strong")
    counts: dict[str, int] = {}
    for number, user in enumerate(("ann", "bob", "ann", "ann")):
        y = 50 + number * 68.0
        before = counts.get(user)
        counts[user] = (before or 0) + 1
        out = [f"+I[{user}, 1]"] if before is None else [f"-U[{user}, {before}]", f"+U[{user}, {counts[user]}]"]
        d.box(20, y, 130, 44, "other", user)
        d.line([(154, y + 22), (244, y + 22)], "line", arrow=True)
        d.box(250, y, 200, 44, "plain")
        for place, change in enumerate(out):
            d.text(264, y + (27 if len(out) == 1 else 18 + place * 19), change, "code")
        d.line([(454, y + 22), (554, y + 22)], "line", arrow=True)
        d.box(560, y, 220, 44, "box", ", ".join(f"{name}: {n}" for name, n in counts.items()))
    return d


PICTURES: dict[str, Callable[[], Drawing]] = {
    "watermark.svg": watermark,
    "splits.svg": splits,
    "keys.svg": keys,
    "barriers.svg": barriers,
    "commits.svg": commits,
    "tasks.svg": tasks,
    "changes.svg": changes,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (Path(__file__).parent / "pictures" / name).write_text(draw().svg(), encoding="utf-8")
