/** Checkpoints and savepoints of a job: figures, a timeline, and the history with what each operator wrote. */

import { h } from "./dom.js";
import { bytes, clock, count, counted, duration, exact, plain, word } from "./format.js";
import { icon } from "./icons.js";
import { figure } from "./shell.js";

const WIDTH = 1000;
const HEIGHT = 84;
const LEAST = 4;
const SHOWN = 60;

export function checkpointsView(state, act) {
  const { checkpoints } = state.job;
  if (!checkpoints) {
    return h(
      "section.panel",
      { key: "checkpoints" },
      h(
        "p.empty",
        null,
        "This job takes no checkpoints: after a failure it begins anew. Set ",
        h("code", null, "execution.checkpointing.interval"),
        " to have them taken.",
      ),
    );
  }
  const last = checkpoints.history.find((c) => c.status === "completed");
  return h(
    "div.stack",
    { key: "checkpoints" },
    h(
      "dl.figures",
      null,
      figure("Completed", exact(checkpoints.completed)),
      figure("Failed", exact(checkpoints.failed), { kind: checkpoints.failed ? "bad" : "" }),
      figure("In progress", exact(checkpoints.inProgress)),
      figure("Last took", duration(last?.durationMs ?? null)),
      figure("Last size", bytes(last?.bytes ?? null)),
      figure("Last at", clock(last?.triggeredMs ?? null)),
    ),
    checkpoints.lastFailure &&
      h(
        "p.note.bad",
        null,
        icon("warning"),
        h("span", null, "The last failure: ", plain(checkpoints.lastFailure, 2000)),
      ),
    timeline(checkpoints, state, act),
    history(checkpoints, state, act),
  );
}

function timeline(checkpoints, state, act) {
  const shown = checkpoints.history.slice(0, SHOWN).reverse();
  if (!shown.length) return h("p.empty", null, "No checkpoint yet. The first one comes when the interval has passed.");
  const ends = (c) => c.triggeredMs + (c.durationMs ?? Math.max(0, state.now - c.triggeredMs));
  const from = shown[0].triggeredMs;
  const to = Math.max(from + 1000, ...shown.map(ends));
  const x = (ms) => ((ms - from) / (to - from)) * (WIDTH - 24) + 12;
  const largest = Math.max(1, ...shown.map((c) => c.bytes ?? 0));
  return h(
    "figure.timeline",
    null,
    h("figcaption", null, "Timeline ", h("small", null, "width is how long it took, height its size")),
    h(
      "svg",
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT + 8}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `The last ${counted(shown.length, "checkpoint")}; the table below says the same`,
      },
      h(
        "defs",
        null,
        h(
          "pattern",
          { id: "failed", width: 8, height: 8, patternUnits: "userSpaceOnUse" },
          h("path", { d: "M-2 10 10 -2M-6 6 6 -6M2 14 14 2" }),
        ),
      ),
      h("line.axis", { x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
      shown.map((c) => {
        const high = c.bytes === null ? HEIGHT * 0.4 : 10 + (HEIGHT - 22) * (c.bytes / largest);
        const width = Math.max(LEAST, x(ends(c)) - x(c.triggeredMs));
        return h(
          "rect.checkpoint",
          {
            key: c.id,
            class: [c.status, c.isSavepoint ? "savepoint" : "", state.opened === c.id ? "open" : ""].join(" "),
            x: x(c.triggeredMs).toFixed(1),
            y: (HEIGHT - high).toFixed(1),
            width: width.toFixed(1),
            height: high.toFixed(1),
            on: { click: () => act.change((s) => (s.opened = s.opened === c.id ? null : c.id)) },
          },
          h("title", null, `${c.kind} ${c.id}: ${word(c.status)}, ${duration(c.durationMs)}, ${bytes(c.bytes)}`),
        );
      }),
    ),
    h("p.axis-ends", null, h("span", null, clock(from)), h("span", null, clock(to))),
  );
}

const SIGNS = { completed: "check", failed: "cross", in_progress: "wait", abandoned: "minus" };

function history(checkpoints, state, act) {
  return h(
    "div.scroller",
    { tabindex: "0", role: "region", "aria-label": "History of checkpoints" },
    h(
      "table.list",
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ["", "Kind", "State", "Triggered", "Took", "Size", "Where"].map((t) => h("th", { scope: "col" }, t)),
        ),
      ),
      h(
        "tbody",
        null,
        checkpoints.history.map((c) => [row(c, state, act), state.opened === c.id ? detail(c, state) : null]),
      ),
    ),
  );
}

function row(c, state, act) {
  const isOpen = state.opened === c.id;
  const name = `${c.kind} ${c.id}`;
  return h(
    "tr",
    { key: c.id, class: isOpen ? "open" : "" },
    h(
      "td.narrow",
      null,
      h(
        "button.fold",
        {
          type: "button",
          "aria-expanded": String(isOpen),
          "aria-label": `Details of ${name}`,
          on: { click: () => act.change((s) => (s.opened = isOpen ? null : c.id)) },
        },
        icon("right"),
      ),
    ),
    h("th", { scope: "row" }, name),
    h("td", null, h(`span.sign.${c.status}`, null, icon(SIGNS[c.status] ?? "dot"), word(c.status), ended(c))),
    h("td.figure-cell", null, clock(c.triggeredMs)),
    h("td.figure-cell", null, duration(c.durationMs)),
    h("td.figure-cell", null, bytes(c.bytes)),
    h("td", null, c.path ? h("bdi.path", { title: plain(c.path) }, plain(c.path, 300)) : plain(c.failure, 300)),
  );
}

/** What each vertex took, and below it each of its operators that has state by key. */
function detail(c, state) {
  const rows = c.vertices.flatMap((part) => {
    const vertex = state.job.byId.get(part.vertex_id);
    const cells = [
      `${part.acknowledged} of ${vertex?.parallelism ?? "?"}`,
      bytes(part.state_bytes),
      bytes(part.written_bytes),
      duration(part.synchronous_ms),
      duration(part.asynchronous_ms),
      duration(part.alignment_ms),
      bytes(part.in_flight_bytes),
    ];
    return [
      h(
        "tr",
        { key: part.vertex_id },
        h(
          "th",
          { scope: "row" },
          vertex && h("span.number", null, vertex.number),
          " ",
          h("bdi", null, plain(vertex?.title ?? part.vertex_id, 120)),
        ),
        cells.map((text) => h("td.figure-cell", null, text)),
      ),
      ...part.operators.map((o) => operatorRow(o, state)),
    ];
  });
  return h(
    "tr.detail",
    { key: `${c.id}-detail` },
    h(
      "td",
      { colspan: 7 },
      c.failure && h("p.note.bad", null, icon("warning"), h("span", null, plain(c.failure, 4000))),
      rows.length
        ? h(
            "div.inner-scroller",
            null,
            h(
              "table.list.inner",
              null,
              h(
                "thead",
                null,
                h(
                  "tr",
                  null,
                  PARTS.map((t) => h("th", { scope: "col" }, t)),
                ),
              ),
              h("tbody", null, rows),
            ),
          )
        : h("p.quiet", null, "No subtask has written anything yet."),
    ),
  );
}

/** Of one that has not ended how many subtasks have. */
function ended(c) {
  return c.status === "in_progress" ? `, ${c.acknowledged} of ${c.subtasks}` : "";
}

const PARTS = ["Vertex", "Subtasks", "State", "Written", "Synchronous", "Asynchronous", "Alignment", "In flight"];

function operatorRow(o, state) {
  const name = state.job.operators.get(o.operator_id)?.name ?? o.operator_id;
  return h(
    "tr.part",
    { key: o.operator_id },
    h("td", null, h("bdi", null, plain(name, 120))),
    h("td", null),
    h("td.figure-cell", null, bytes(o.state_bytes)),
    h("td", { colspan: 5 }, `${count(o.state_rows)} rows in files`),
  );
}
