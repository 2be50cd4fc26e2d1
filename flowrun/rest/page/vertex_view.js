/** A vertex that is opened: its rates, its subtasks, its operators, and what comes in and goes out. */

import { h } from "./dom.js";
import {
  bytes,
  clock,
  count,
  counted,
  duration,
  eventTime,
  exact,
  percent,
  plain,
  rate,
  UNKNOWN,
  word,
} from "./format.js";
import { loadBar, loadText } from "./graph_view.js";
import { icon } from "./icons.js";
import { figure } from "./shell.js";
import { sparkline } from "./sparkline.js";

const MOST_SUBTASKS = 200;
const SKEWED = 1.5;
const HEAVY = 0.1;

export function vertexView(state, act) {
  const vertex = state.job.byId.get(state.selected);
  if (!vertex) return h("p.empty", null, "Choose a vertex of the graph to see its subtasks, watermarks and state.");
  const history = state.history.of(vertex.id);
  return h(
    "section.vertex-detail",
    { key: vertex.id, "aria-label": `Vertex ${vertex.number}` },
    h(
      "header",
      null,
      h("span.number.large", null, vertex.number),
      h("h2", { tabindex: "-1", id: "vertex-title" }, h("bdi", null, plain(vertex.title, 400))),
      h(
        "button.square",
        {
          type: "button",
          title: "Close (Esc)",
          "aria-label": "Close the vertex (Esc)",
          on: { click: () => act.select(null) },
        },
        icon("cross"),
      ),
    ),
    h("div.load-row", null, loadBar(vertex), h("span", null, loadText(vertex))),
    h(
      "dl.figures.tight",
      null,
      rateFigure(
        vertex.isSource ? "Rows read" : "Rows in",
        vertex.rateIn,
        vertex.recordsIn,
        history.map((s) => s.rateIn),
      ),
      rateFigure(
        vertex.isLast ? "Rows written" : "Rows out",
        vertex.rateOut,
        vertex.recordsOut,
        history.map((s) => s.rateOut),
      ),
      figure("Watermark", shortTime(vertex.watermark), {
        below: vertex.lagMs === null ? dayOf(vertex.watermark) : `${duration(vertex.lagMs)} behind now`,
        title: `${eventTime(vertex.watermark)} UTC`,
      }),
      figure("State", bytes(vertex.stateBytes), {
        below: vertex.stateBytes === null ? "known after a checkpoint" : "at the last checkpoint",
      }),
      figure("Skew", skewOf(vertex), {
        kind: vertex.skew >= SKEWED ? "bad" : "",
        below: vertex.skew === null ? null : "most : mean, by rows",
        title: "Rows of the subtask with most, over the mean of all",
      }),
      figure("Traffic in", bytes(vertex.bytesIn), { below: `${bytes(vertex.bytesOut)} out` }),
    ),
    subtasks(vertex, state),
    operators(vertex, state, act),
    exchanges(vertex, state, act),
  );
}

function skewOf({ skew }) {
  return skew === null ? UNKNOWN : `${skew.toFixed(skew < 10 ? 1 : 0)} ×`;
}

function rateFigure(name, now, total, values) {
  return figure(name, [rate(now), sparkline(values, { label: `${name} a second, lately` })], {
    below: `${count(total)} in all`,
    title: exact(total),
  });
}

function subtasks(vertex, state) {
  const most = Math.max(1, ...vertex.subtasks.map((s) => s.recordsIn || s.recordsOut));
  const shown = vertex.subtasks.slice(0, MOST_SUBTASKS);
  const heads = ["#", "State", vertex.isSource ? "Read" : "In", "Out", "Load", "Watermark"];
  const places = new Set(vertex.subtasks.map((s) => s.place).filter(Boolean)).size > 1;
  if (places) heads.push("Where");
  return h(
    "div",
    { key: "subtasks" },
    h("h3", null, counted(vertex.subtasks.length, "subtask")),
    h(
      "div.scroller",
      { tabindex: "0", role: "region", "aria-label": "Subtasks" },
      h(
        "table.list.compact",
        null,
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            heads.map((t) => h("th", { scope: "col" }, t)),
          ),
        ),
        h(
          "tbody",
          null,
          shown.map((s) => subtask(s, most, places, state)),
        ),
      ),
    ),
    vertex.subtasks.length > MOST_SUBTASKS && h("p.quiet", null, `The first ${MOST_SUBTASKS} are shown.`),
  );
}

function subtask(s, most, places, state) {
  const share = (s.recordsIn || s.recordsOut) / most;
  const behind = s.watermark === null ? "" : clockOf(s, state);
  return h(
    "tr",
    { key: s.index },
    h("th", { scope: "row" }, s.index),
    h("td", null, h(`span.sign.${s.stateKind}`, null, word(s.state))),
    h(
      "td.figure-cell.share",
      { style: { "--share": `${(share * 100).toFixed(1)}%` }, title: `${exact(s.recordsIn)} rows` },
      rate(s.rateIn),
    ),
    h("td.figure-cell", { title: `${exact(s.recordsOut)} rows` }, rate(s.rateOut)),
    h(
      "td.load-cell",
      { title: loadTitle(s) },
      loadBar(s),
      h("small", null, s.backPressured >= 0.1 ? `${percent(s.backPressured)} pressed` : percent(s.busy)),
    ),
    h("td.figure-cell", { title: behind }, shortTime(s.watermark)),
    places && h("td", null, h("bdi", null, plain(s.place, 60))),
  );
}

function loadTitle({ busy, backPressured, idle }) {
  return `${percent(busy)} busy, ${percent(backPressured)} back-pressured, ${percent(idle)} idle`;
}

function clockOf({ watermark }, state) {
  return `${eventTime(watermark)}, ${duration(state.now - watermark)} behind now`;
}

function shortTime(watermark) {
  const text = eventTime(watermark);
  return /^[+-]?\d/.test(text) ? text.split(" ")[1] : text;
}

function dayOf(watermark) {
  const text = eventTime(watermark);
  return /^[+-]?\d/.test(text) ? text.split(" ")[0] : null;
}

function operators(vertex, state, act) {
  return h(
    "div",
    { key: "operators" },
    h("h3", null, counted(vertex.operators.length, "operator")),
    h(
      "ol.operators",
      null,
      vertex.operators.map((o) =>
        h(
          "li",
          { key: o.id },
          h("bdi.operator-name", null, plain(o.name, 400)),
          o.line !== null &&
            h(
              "button.link",
              { type: "button", on: { click: () => act.showLine(vertex.id, o.line) } },
              `line ${o.line}`,
            ),
          h(
            "p.quiet",
            null,
            [o.kind, o.uid && `uid ${o.uid}`, o.stateBytes ? `${bytes(o.stateBytes)} of state` : null]
              .filter(Boolean)
              .map((t) => plain(t, 200))
              .join(" · "),
          ),
          h("p.flow", null, `${count(o.recordsIn)} in, ${count(o.recordsOut)} out`),
          o.counters.length > 0 &&
            h(
              "dl.counters",
              null,
              o.counters.map(([name, value]) =>
                h("div", { key: name }, h("dt", null, plain(name, 80)), h("dd", null, exact(value))),
              ),
            ),
        ),
      ),
    ),
  );
}

function exchanges(vertex, state, act) {
  const edges = state.job.edges.filter((e) => e.source === vertex.id || e.target === vertex.id);
  if (!edges.length) return null;
  return h(
    "div",
    { key: "exchanges" },
    h("h3", null, "Edges"),
    h(
      "ul.exchanges",
      null,
      edges.map((edge) => {
        const isIn = edge.target === vertex.id;
        const other = state.job.byId.get(isIn ? edge.source : edge.target);
        if (!other) return null;
        return h(
          "li",
          { key: edge.id },
          h("span.quiet", null, isIn ? "from" : "to"),
          h(
            "button.link",
            { type: "button", on: { click: () => act.select(other.id) } },
            h("span.number", null, other.number),
            " ",
            h("bdi", null, plain(other.title, 80)),
          ),
          h("span.tag", { title: plain(edge.describes, 400) }, plain(edge.describes, 60)),
          edge.rate !== null && h("span.figure-cell", null, rate(edge.rate)),
          rowsButton(edge, state, act),
          heavyKeys(edge),
          state.sampled === edge.exchange && sampledRows(edge),
        );
      }),
    ),
  );
}

/** The keys that most rows of an edge have, if any key has more than its share. */
function heavyKeys({ heavyKeys: keys }) {
  const heavy = keys.filter(({ share }) => share >= HEAVY);
  if (!heavy.length) return null;
  return h(
    "p.quiet.heavy",
    null,
    "Heaviest keys: ",
    heavy.map(({ key, share }, i) => [i ? ", " : "", h("bdi", null, plain(key, 100)), ` (${percent(share)})`]),
  );
}

/** Shows the last rows of an edge, or not any more: the job keeps them only while somebody looks. */
function rowsButton(edge, state, act) {
  const isOn = state.sampled === edge.exchange;
  return h(
    "button.rows-button",
    {
      type: "button",
      "aria-pressed": String(isOn),
      disabled: state.connection.state !== "live",
      title: "The last rows that each subtask has sent over this edge",
      on: { click: () => act.sample(isOn ? null : edge.exchange) },
    },
    isOn ? "Hide rows" : "Rows",
  );
}

function sampledRows({ rows }) {
  if (!rows.length) return h("p.quiet.sampled", { role: "status" }, "Waiting for rows …");
  return h(
    "div.sampled",
    { tabindex: "0", role: "region", "aria-label": "The last rows of this edge" },
    h(
      "ol",
      null,
      rows.map(({ subtask, text }) =>
        h("li", null, h("small", null, `${subtask} `), h("bdi", null, plain(text, 2500))),
      ),
    ),
  );
}
