"""The page that shows jobs, in a real browser, as somebody uses it: by mouse, by keys, on a small screen, and with names that attack it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.rest.doors import DoorOptions, open_door
from flowrun.runners.job_document import JobDocument
from flowrun.runtime.job_details import FailureRecord, JobDetails, RestartedSubtasks
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.rpc.address import TcpAddress
from flowrun.runtime.rpc.error_values import error_to_value
from tests.rest.control_fakes import FakeJob, controlled
from tests.rest.shown_jobs import SHOP, ShownJob, address_of, run_shown, savepoints_in, with_texts
from tests.servers.chromium import Browser

pytestmark = pytest.mark.exhaustive

VIEWS = ("Graph", "Checkpoints", "Exceptions", "Why", "Configuration", "Log")
OVERFLOWS = "document.documentElement.scrollWidth > window.innerWidth"
HOSTILE = (
    '<img src=x onerror="window.hit=1"><script>window.hit=1</script>\'\u202edlrow\u200b\x1b]0;x\x07 javascript:hit()'
    + "y" * 10_000
)
IDS = frozenset({
    "job_id", "vertex_id", "operator_id", "exchange_id", "source", "target", "attempt_id", "status", "kind", "outcome"
})  # fmt: skip
"""By which the parts of a job find each other, and words that flowrun chooses."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShownJob]:
    with run_shown(tmp_path_factory.mktemp("shop"), SHOP) as job:
        yield job


def open_view(browser: Browser, word: str) -> None:
    browser.click(f"[role=tab][title^={word}]")
    browser.wait(f"document.querySelector('[role=tab][aria-selected=true]')?.title.startsWith('{word}')")


def test_the_graph_of_a_running_job_moves(browser: Browser, shop: ShownJob) -> None:
    browser.open(shop.address)
    browser.see("shop revenue")
    browser.wait("document.querySelectorAll('.vertex').length === 4 && document.querySelectorAll('.edge').length === 3")
    assert "token" not in browser.run("return location.href"), "the token is neither in the address nor in the history"
    total = "(document.querySelector('.figure')?.title ?? '').replaceAll(',', '')"
    before = int(browser.wait(total))
    browser.wait(f"Number({total}) > {before}")
    browser.wait("[...document.querySelectorAll('.vertex-rates')].every((e) => /\\d/.test(e.innerText))")
    browser.wait("[...document.querySelectorAll('.load-bar .busy')].some((e) => parseFloat(e.style.width) > 0)")
    assert browser.problems() == []


def test_every_view_fits_a_large_and_a_small_screen(browser: Browser, shop: ShownJob) -> None:
    browser.open(shop.address)
    browser.see("shop revenue")
    for width in (1200, 400):
        browser.resize(width)
        for view in VIEWS:
            open_view(browser, view)
            browser.wait("!document.body.innerText.includes('Loading')")
            assert not browser.run(f"return {OVERFLOWS}"), f"{view} is wider than {width} pixels"
        open_view(browser, "Graph")
        browser.click(".vertex")
        browser.wait("document.querySelector('.vertex-detail')")
        assert not browser.run(f"return {OVERFLOWS}"), f"a vertex is wider than {width} pixels"
        browser.click("[aria-label^='Close the vertex']")
    browser.click(".brand")
    browser.see("1 pipeline")
    assert not browser.run(f"return {OVERFLOWS}"), "the list of jobs is wider than 400 pixels"
    assert browser.problems() == []


def test_checkpoints_stand_on_a_timeline_and_tell_what_each_operator_took(browser: Browser, shop: ShownJob) -> None:
    browser.open(shop.address)
    browser.see("shop revenue")
    open_view(browser, "Checkpoints")
    browser.wait("document.querySelectorAll('rect.checkpoint.completed').length > 1")
    browser.click("tr:has(.sign.completed) .fold")  # one that is under way has not come to every operator
    browser.see("rows in files")
    assert "settled.join" in browser.text()
    assert browser.problems() == []


def test_lines_of_the_text_lead_to_vertices_and_back(browser: Browser, shop: ShownJob) -> None:
    browser.open(shop.address)
    browser.see("shop revenue")
    number = next(i for i, line in enumerate(SHOP.splitlines(), 1) if "GROUP BY" in line)
    browser.click(f".line[data-line='{number}'] code")
    browser.wait("document.querySelector('.vertex.open .vertex-name')?.innerText.startsWith('revenue')")
    assert browser.run("return document.querySelector('.line.open[data-line=\"' + arguments[0] + '\"]')", str(number))
    browser.click("[data-vertex].open + [data-vertex]")
    browser.wait("document.querySelector('.vertex-detail')")
    browser.click(".operators .link")
    browser.wait("document.querySelector('.line.open')")
    shown = browser.run("return document.querySelector('.line.open').innerText")
    assert "orders" in shown or "payments" in shown or "JOIN" in shown
    assert browser.problems() == []


def test_the_numbers_of_several_vertices_of_one_line_cover_nothing_of_it(browser: Browser, tmp_path: Path) -> None:
    lines = " ".join(line for line in SHOP.splitlines() if not line.startswith("--"))  # all in one line
    with run_shown(tmp_path / "job", lines) as job:
        for width in (1200, 400):
            browser.open(job.address, width=width)
            browser.see("shop revenue")
            browser.wait("document.querySelectorAll('.marks .number').length > 2")
            assert browser.run(COVERED) == []


COVERED = """
return [...document.querySelectorAll('.line')].filter((line) => {
  const begins = line.querySelector('code').getBoundingClientRect().left;
  return [...line.querySelectorAll('.marks .number')].some((mark) => mark.getBoundingClientRect().right > begins);
}).map((line) => line.innerText);
"""


def test_the_last_rows_of_an_edge_are_shown_when_somebody_asks(browser: Browser, shop: ShownJob) -> None:
    browser.open(shop.address)
    browser.see("shop revenue")
    browser.click("[aria-label*='payments'][data-vertex]")
    browser.wait("document.querySelector('.rows-button')")
    assert not browser.run("return document.querySelector('.sampled')"), "rows are not shown unless somebody asks"
    browser.click(".rows-button")
    browser.wait("/\"paid\":[0-9.]+/.test(document.querySelector('.sampled')?.innerText)")
    before = browser.run("return document.querySelector('.sampled').innerText")
    browser.wait("document.querySelector('.sampled')?.innerText !== arguments[0]", before)
    browser.click(".rows-button")
    browser.wait("!document.querySelector('.sampled')")
    assert browser.problems() == []


def test_all_is_done_by_keys(browser: Browser, shop: ShownJob) -> None:
    browser.open(shop.address)
    browser.see("shop revenue")
    browser.wait("document.querySelectorAll('.vertex').length === 4")
    focused = "document.activeElement.dataset.vertex"
    for _ in range(30):
        browser.press("\ue004")
        if browser.run(f"return {focused}"):
            break
    first = browser.run(f"return {focused}")
    assert first, "the graph is reached by the tabulator"
    browser.press("\ue015")
    second = browser.wait(f"{focused} !== arguments[0] && {focused}", first)
    edges = browser.run("return document.activeElement.getAttribute('aria-label')")
    assert "reads from" in edges, "the arrow leads along an edge"
    browser.press("\ue007")
    browser.wait("document.querySelector('.vertex.open')?.dataset.vertex === arguments[0]", second)
    browser.press("\ue00c")
    browser.wait("!document.querySelector('.vertex.open')")
    browser.press("?")
    browser.see("These keys")
    browser.press("\ue00c")
    browser.wait("!document.querySelector('dialog')")
    browser.press("c")
    browser.wait("location.hash.endsWith('/checkpoints')")
    browser.press("s")
    browser.wait("document.activeElement.name === 'directory'")
    browser.press("c", "\ue00c")
    browser.wait("!document.querySelector('dialog')")
    assert browser.run("return location.hash").endswith("/checkpoints"), "what is typed is no key"
    assert browser.problems() == []


def test_colours_follow_the_system_and_the_user(browser: Browser, shop: ShownJob) -> None:
    browser.open(shop.address)
    browser.see("shop revenue")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = browser.run(f"return {ground}")
    browser.prefer("dark")
    dark = browser.wait(f"{ground} !== arguments[0] && {ground}", light)
    browser.press("t")
    browser.wait(f"{ground} === arguments[0]", light)
    browser.press("t")
    browser.wait(f"{ground} === arguments[0]", dark)
    for scheme in ("light", "dark"):
        browser.run("document.documentElement.dataset.theme = arguments[0]", scheme)
        assert browser.run(CONTRASTS) == [], f"texts that are hard to read in {scheme} colours"
    browser.press("t")


CONTRASTS = """
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const light = (color) => {
  canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const pairs = [['ink', 'ground'], ['ink-soft', 'ground'], ['ink-soft', 'sunken'], ['ink-soft', 'busy-wash'], ['ink', 'busy-wash'],
  ['accent', 'surface'], ['accent', 'accent-wash'], ['on-accent', 'accent-fill'], ['bad', 'bad-wash'], ['good', 'good-wash'],
  ['pressed-ink', 'pressed-wash'], ['ink-soft', 'pressed-wash']];
const probe = document.body.appendChild(document.createElement('i'));
const value = (name) => { probe.style.color = `var(--${name})`; return light(getComputedStyle(probe).color); };
const bad = pairs.filter(([ink, ground]) => {
  const [a, b] = [value(ink), value(ground)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
});
probe.remove();
return bad.map(String);
"""


def test_a_wrong_token_is_told_and_another_one_unlocks(browser: Browser, shop: ShownJob) -> None:
    browser.open(shop.address[:-4] + "beef")
    browser.see("Locked")
    assert "shop revenue" not in browser.text()
    browser.problems()
    browser.click(".message button")
    browser.wait("document.activeElement.name === 'token'")
    browser.press(shop.entry.token, "\ue007")
    browser.see("shop revenue")
    assert browser.problems() == []


def test_a_job_is_stopped_with_a_savepoint_and_its_end_is_shown(browser: Browser, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with run_shown(tmp_path / "job", SHOP) as job:
        browser.open(job.address)
        browser.see("shop revenue")
        browser.wait("document.querySelectorAll('.vertex').length === 4")
        browser.wait("document.querySelector('.chip')?.innerText.includes('Running')")
        browser.click(".actions .stop")
        browser.wait("document.activeElement.name === 'directory'")
        browser.press(str(kept), "\ue007")
        browser.see("The job has stopped")
        browser.see("What stands here is how the job ended")
        assert job.process.wait(30) == 0
    [savepoint] = savepoints_in(kept)
    assert str(savepoint) in browser.text()
    assert browser.run("return document.querySelector('.actions .stop').disabled")
    assert browser.problems() == []


class HostileJob(FakeJob):
    """Every text that somebody else chose is one that attacks a page."""

    def details(self) -> JobDetails:
        try:
            raise OSError("x")
        except OSError as error:
            cause = error_to_value(error)
        failure = FailureRecord(1, "x", cause, "x", "k", 0, "x", "failed", "x", (RestartedSubtasks("k", (0,)),))
        found = super().details()
        failed = replace(found.checkpoints[0], checkpoint_id=8, status="failed", failure="x", path=None)
        found = replace(found, failures=(failure,), checkpoints=(*found.checkpoints, failed))
        return with_texts(replace(found, status=replace(found.status, last_failure="x", waits_for="x")), HOSTILE, IDS)


def test_hostile_texts_are_texts(browser: Browser, tmp_path: Path) -> None:
    document = JobDocument(
        HOSTILE, "sql", f"{HOSTILE}\n" * 3, "", "", {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE}, (HOSTILE,)
    )
    with controlled(HostileJob(), tmp_path, name=HOSTILE, document=document) as endpoint:
        for width in (1200, 400):
            browser.open(address_of(endpoint.entry), width=width)
            browser.see("<img src=x onerror=")
            for view in VIEWS:
                open_view(browser, view)
                browser.wait("!document.body.innerText.includes('Loading')")
                browser.run("document.querySelectorAll('summary, .fold').forEach((e) => e.click())")
                assert not browser.run(f"return {OVERFLOWS}"), f"{view} is wider than {width} pixels"
            browser.click("[role=tab]")
            browser.click(".vertex")
            browser.wait("document.querySelector('.vertex-detail')")
            assert not browser.run(f"return {OVERFLOWS}")
            assert "\\u202edlrow" in browser.text(), "what turns the direction of writing is shown as what it is"
            browser.click(".brand")
            browser.see("1 pipeline")
            assert not browser.run(f"return {OVERFLOWS}")
            assert browser.run("return window.hit ?? document.querySelectorAll('#page img, #page script').length") == 0
            assert browser.problems() == []


def test_a_job_that_ends_while_it_is_looked_at_says_how(browser: Browser, tmp_path: Path) -> None:
    job = FakeJob()
    with controlled(job, tmp_path, document=JobDocument("orders.sql", "sql", "SELECT 1")) as endpoint:
        browser.open(address_of(endpoint.entry))
        browser.see("Running")
        job.state = JobState.FAILED
        browser.see("Failed. What stands here is how the job ended")
        assert browser.problems() == []
    assert browser.problems() == [], "a job that is over is not asked any more"


def test_graphs_are_laid_out_in_layers_without_overlaps(browser: Browser, shop: ShownJob) -> None:
    browser.open(shop.address)
    browser.see("shop revenue")
    found = browser.driver.execute_async_script(LAYOUTS)
    assert found == []


LAYOUTS = """
const done = arguments[arguments.length - 1];
import('/layers.js').then(({ layOut, spread }) => {
  const wrong = [];
  let seed = 7;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 60; round++) {
    const size = 1 + random(40);
    const nodes = [...Array(size).keys()].map((i) => ({ id: `n${i}`, width: 100 + random(200), height: 60 + random(60) }));
    const edges = [];
    for (let i = 1; i < size; i++) {
      for (let k = random(3); k >= 0; k--) edges.push({ id: `e${i}.${k}`, source: `n${random(i)}`, target: `n${i}` });
    }
    for (const direction of ['down', 'right']) {
      const { nodes: places, edges: routes, width, height } = layOut(nodes, edges, { direction, layerGap: 50, nodeGap: 20 });
      const boxes = [...places.values()];
      boxes.forEach((a, i) => {
        if (a.x < -0.01 || a.y < -0.01 || a.x + a.width > width + 0.01 || a.y + a.height > height + 0.01) wrong.push('outside');
        for (const b of boxes.slice(i + 1)) {
          if (a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height) wrong.push('overlap');
        }
      });
      for (const { id, source, target } of edges) {
        if (places.get(source).layer >= places.get(target).layer) wrong.push(`backwards ${id}`);
        if (!/^M [-0-9. LC,]+$/.test(routes.get(id).path)) wrong.push(`path ${routes.get(id).path}`);
      }
    }
    const wishes = nodes.map(() => ({ at: random(500), weight: 1 + random(4) }));
    const gaps = nodes.slice(1).map(() => random(60));
    const at = spread(wishes, gaps);
    at.slice(1).forEach((x, i) => x - at[i] >= gaps[i] - 1e-6 || wrong.push('too near'));
    const mean = (list) => list.reduce((sum, [v, w]) => sum + v * w, 0);
    const total = mean(at.map((v, i) => [v - wishes[i].at, wishes[i].weight]));
    if (Math.abs(total) > 1e-6 * size * 500) wrong.push('not the least squares');
  }
  const cross = [['a', 'd'], ['b', 'c'], ['a', 'c']].map(([s, t]) => ({ id: s + t, source: s, target: t }));
  const small = layOut(['a', 'b', 'c', 'd'].map((id) => ({ id, width: 9, height: 9 })), cross);
  if (small.crossings !== 0) wrong.push('crossings that need not be');
  const round = [['a', 'b'], ['b', 'a'], ['a', 'a']].map(([s, t]) => ({ id: s + t, source: s, target: t }));
  const loop = layOut(['a', 'b'].map((id) => ({ id, width: 9, height: 9 })), round);
  if (loop.nodes.size !== 2 || !loop.edges.has('ba')) wrong.push('cycle');
  done(wrong);
}, (error) => done([String(error)]));
"""


def test_findings_are_those_of_the_command_line(browser: Browser, tmp_path: Path) -> None:
    with controlled(FakeJob(), tmp_path / "run", document=JobDocument("orders.sql", "sql", "SELECT 1")) as endpoint:
        browser.open(address_of(endpoint.entry))
        browser.see("orders")
        open_view(browser, "Why")
        browser.see("2 things leave rows out")
        browser.see("drops late rows")
        browser.see("What to do:")
        assert browser.run("return document.querySelectorAll('.finding.bad').length") == 2
        browser.click(".finding .vertices button")
        browser.see("1 subtask")
        assert browser.problems() == []


def test_the_page_of_a_job_that_is_gone_leads_to_the_run_that_goes_on(browser: Browser, tmp_path: Path) -> None:
    options = DoorOptions(TcpAddress("127.0.0.1", 0))
    door = open_door(options)
    with controlled(FakeJob(), tmp_path, door=door):
        browser.open(f"{door.url}#token={door.token}")
        browser.see("hash[user_id]")
    later = replace(options, address=TcpAddress("127.0.0.1", door.port))
    job = FakeJob("fedcba9876543210")
    with controlled(job, tmp_path, door=open_door(later)):
        browser.see("does not have this job any more")
        browser.click(".newer")
        browser.wait("location.hash.includes('fedcba9876543210')")
        browser.see("Live")
        job.cancel()
        browser.see("Cancelled")
        assert not browser.run("return document.querySelector('.newer')"), "no run of this pipeline goes on"


def test_a_page_whose_job_is_killed_says_since_when_there_is_no_answer(browser: Browser, shop: ShownJob) -> None:
    # the last test of the shop, whose process ends here
    browser.open(shop.address)
    browser.wait("document.querySelectorAll('.vertex').length === 4")
    shop.process.kill()
    browser.see("No answer since")
    assert browser.run("return document.querySelectorAll('.vertex').length") == 4, "what was known stays"
