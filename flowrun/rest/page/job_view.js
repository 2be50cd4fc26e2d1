/** One job: how it stands, what may be done with it, and the view that is open. */

import { checkpointsView } from "./checkpoints_view.js";
import { h } from "./dom.js";
import { exceptionsView } from "./exceptions_view.js";
import { findingsView } from "./findings_view.js";
import { bytes, clock, count, duration, exact, plain, rate } from "./format.js";
import { graphView } from "./graph_view.js";
import { icon } from "./icons.js";
import { logView } from "./log_view.js";
import { addressOf } from "./route.js";
import { settingsView } from "./settings_view.js";
import { chip, figure, skeleton } from "./shell.js";
import { sparkline } from "./sparkline.js";
import { textView } from "./text_view.js";
import { vertexView } from "./vertex_view.js";

/** Views of a job: name in the address, word, key. */
export const TABS = [
  ["graph", "Graph", "g"],
  ["checkpoints", "Checkpoints", "c"],
  ["exceptions", "Exceptions", "e"],
  ["findings", "Why", "w"],
  ["settings", "Configuration", "o"],
  ["log", "Log", "l"],
];
const VIEWS = {
  checkpoints: checkpointsView,
  exceptions: exceptionsView,
  findings: findingsView,
  settings: settingsView,
  log: logView,
};

export function jobView(state, act) {
  const { job, route } = state;
  if (!job) return skeleton();
  return h(
    "div.job",
    { key: `job-${job.id}`, class: route.tab === "graph" ? "fills" : "" },
    heading(state, act),
    banner(state),
    figures(state),
    tabs(state, act),
    h(
      "div.tab-view",
      { key: "view", role: "tabpanel", id: "view", "aria-labelledby": `tab-${route.tab}` },
      route.tab === "graph" ? graphAndSide(state, act) : VIEWS[route.tab](state, act),
    ),
  );
}

function heading(state, act) {
  const { job } = state;
  const can = state.connection.state === "live" && !job.isOver;
  const button = (name, word, sign, dialog) =>
    h(
      "button",
      { key: name, type: "button", disabled: !can, class: name, on: { click: () => act.openDialog(dialog) } },
      icon(sign),
      h("span", null, word),
    );
  return h(
    "header.heading",
    { key: "heading" },
    h("h1", null, h("bdi", null, plain(job.name, 300))),
    chip(job.health),
    h("p.quiet", null, h("bdi", { title: plain(job.file, 500) }, plain(job.file, 160))),
    h(
      "div.actions",
      { role: "group", "aria-label": "Orders" },
      button("savepoint", "Savepoint", "save", "savepoint"),
      button("rescale", "Rescale", "scale", "rescale"),
      button("stop", "Stop", "stop", "stop"),
    ),
  );
}

function banner(state) {
  const { job, connection } = state;
  if (connection.state === "lost") {
    const ask = "What stands here is how it was then. The page goes on asking.";
    return h(
      "p.note.bad",
      { key: "banner", role: "alert" },
      icon("warning"),
      h(
        "span",
        null,
        `No answer since ${clock(connection.seenMs)}: the job's process may have ended, or cannot be reached. ${ask}`,
      ),
    );
  }
  if (connection.state === "gone")
    return h(
      "p.note.warning",
      { key: "banner", role: "status" },
      icon("warning"),
      h(
        "span",
        null,
        `The server at this address does not have this job any more. What stands here is from ${clock(connection.seenMs)}.`,
        newerRun(state),
      ),
    );
  if (job.isOver)
    return h(
      `p.note.${job.health.kind}`,
      { key: "banner", role: "status" },
      icon(job.health.kind === "bad" ? "warning" : "check"),
      h(
        "span",
        null,
        `${job.health.text}. What stands here is how the job ended.`,
        job.lastFailure && h("bdi", null, ` ${plain(job.lastFailure, 2000)}`),
        newerRun(state),
      ),
    );
  if (job.waitsFor)
    return h(
      "p.note.warning",
      { key: "banner", role: "status" },
      icon("wait"),
      h("span", null, `Waits for ${plain(job.waitsFor, 600)}`),
    );
  if (job.health.why)
    return h(
      `p.note.${job.health.kind}`,
      { key: "banner", role: "status" },
      icon("warning"),
      h("span", null, plain(job.health.why, 2000)),
    );
  return null;
}

function newerRun({ newer }) {
  return newer && h("a.newer", { key: "newer", href: addressOf(newer) }, "Open the run of this pipeline that goes on.");
}

function figures({ job, history }) {
  const totals = history.of("");
  const last = job.checkpoints?.history.find((c) => c.status === "completed");
  return h(
    "dl.figures",
    { key: "figures" },
    figure(
      "Rows read",
      [
        rate(job.rateIn),
        sparkline(
          totals.map((s) => s.rateIn),
          { label: "Rows read a second, lately" },
        ),
      ],
      { below: `${count(job.rowsIn)} in all`, title: exact(job.rowsIn) },
    ),
    figure(
      "Rows written",
      [
        rate(job.rateOut),
        sparkline(
          totals.map((s) => s.rateOut),
          { label: "Rows written a second, lately" },
        ),
      ],
      { below: `${count(job.rowsOut)} in all`, title: exact(job.rowsOut) },
    ),
    figure("Event time lag", duration(job.lagMs), {
      below: job.lagMs === null ? "no watermark" : "of the slowest sink",
    }),
    figure("Last checkpoint", job.checkpoints ? duration(last?.durationMs ?? null) : "None", {
      below: last
        ? `${bytes(last.bytes)}, at ${clock(last.triggeredMs)}`
        : job.checkpoints
          ? "none yet"
          : "are not taken",
      kind: job.checkpoints?.failed ? "warning" : "",
    }),
    figure("Restarts", exact(job.restarts), {
      kind: job.restarts ? "warning" : "",
      below: job.slots ? `on ${exact(job.slots)} slot${job.slots === 1 ? "" : "s"}` : null,
    }),
    figure("Running for", duration(job.runningMs), { below: job.startedMs ? `since ${clock(job.startedMs)}` : null }),
  );
}

function tabs(state, act) {
  const { route, job } = state;
  const counts = {
    exceptions: job.failures.length,
    checkpoints: job.checkpoints?.failed ?? 0,
    findings: state.findings.list.filter((f) => f.severity !== "informs").length,
  };
  const shown = shownTabs(state);
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const names = shown.map(([name]) => name);
    const next = names[(names.indexOf(route.tab) + step + names.length) % names.length];
    act.open(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return h(
    "div.tabs",
    { key: "tabs", role: "tablist", "aria-label": "Views of the job", on: { keydown: move } },
    shown.map(([name, word, key]) =>
      h(
        "button",
        {
          key: name,
          id: `tab-${name}`,
          type: "button",
          role: "tab",
          "aria-selected": String(route.tab === name),
          "aria-controls": "view",
          tabindex: route.tab === name ? "0" : "-1",
          title: `${word} (${key})`,
          on: { click: () => act.open(name) },
        },
        word,
        counts[name] > 0 && h("span.count", null, exact(counts[name])),
      ),
    ),
  );
}

/** The tabs that this server has something for. */
export function shownTabs(state) {
  return TABS.filter(([name]) => name !== "findings" || state.findings.state !== "missing").filter(
    ([name]) => name !== "log" || state.log.state !== "missing",
  );
}

function graphAndSide(state, act) {
  const side = state.side;
  const choose = (name, word) =>
    h(
      "button",
      {
        key: name,
        type: "button",
        "aria-pressed": String(side === name),
        on: { click: () => act.change((s) => (s.side = side === name ? "" : name)) },
      },
      word,
    );
  return h(
    "div.graph-and-side",
    { key: "both", class: side ? "" : "alone" },
    graphView(state, act),
    h(
      "aside.side",
      { key: "side", "aria-label": "Beside the graph" },
      h(
        "div.segments",
        { role: "group", "aria-label": "What stands beside the graph" },
        choose("text", "Text"),
        choose("vertex", "Vertex"),
        side === "text" &&
          state.text.file &&
          h("bdi.quiet.file", { title: plain(state.text.file, 500) }, plain(state.text.file.split("/").at(-1), 60)),
      ),
      side === "text" && h("div.side-view", { key: "text" }, textView(state, act)),
      side === "vertex" && h("div.side-view.scrolls", { key: "vertex" }, vertexView(state, act)),
    ),
  );
}
