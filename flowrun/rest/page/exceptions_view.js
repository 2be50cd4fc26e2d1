/** What went wrong: each failure with its root cause, where it was and what restarted. */

import { h } from "./dom.js";
import { clock, counted, duration, plain } from "./format.js";
import { icon } from "./icons.js";

const LONGEST = 20_000;

export function exceptionsView(state, act) {
  const { failures } = state.job;
  if (!failures.length) {
    return h(
      "section.panel",
      { key: "exceptions" },
      h("p.empty", null, icon("check"), " Nothing has failed since this job was started."),
    );
  }
  return h(
    "section.stack",
    { key: "exceptions", "aria-label": "Exceptions" },
    h("p.quiet", null, `${counted(failures.length, "failure")}, the newest first.`),
    failures.map((failure, i) => card(failure, i, state, act)),
  );
}

function card(failure, i, state, act) {
  const vertex = state.job.byId.get(failure.vertexId);
  return h(
    "article.failure",
    { key: `${failure.atMs}-${failure.number}` },
    h(
      "header",
      null,
      icon("warning"),
      h("h3", null, h("bdi", null, `${plain(failure.kind, 80)}: ${plain(failure.message, 2000)}`)),
      h("time", null, clock(failure.atMs)),
    ),
    h(
      "p.quiet",
      null,
      vertex &&
        h(
          "button.link",
          { type: "button", on: { click: () => act.select(vertex.id, "exceptions") } },
          h("span.number", null, vertex.number),
          " ",
          h("bdi", null, plain(vertex.title, 120)),
        ),
      h("span", null, " ", plain(failure.where, 400)),
      failure.worker && h("span", null, ` on ${plain(failure.worker, 80)}`),
    ),
    h("p", null, outcome(failure, state)),
    failure.hint && h("p", null, plain(failure.hint, 2000)),
    failure.trace &&
      h(
        "details",
        { open: i === 0 && failure.trace.length < 1500 },
        h("summary", null, "Stack"),
        h("pre", { tabindex: "0" }, plain(failure.trace, LONGEST)),
      ),
  );
}

/** What came of a failure. */
function outcome(failure, state) {
  if (failure.outcome === "failed")
    return `The job ended with it${failure.whyFailed ? `: ${plain(failure.whyFailed, 1000)}` : ""}.`;
  const parts = failure.restarted.map((r) => {
    const vertex = state.job.byId.get(r.vertex_id);
    const all = vertex?.subtasks.length === r.subtasks.length;
    return `${vertex?.number ?? "a vertex"}${all ? "" : ` (subtask ${r.subtasks.join(", ")})`}`;
  });
  const after = failure.delayMs ? ` after ${duration(failure.delayMs)}` : "";
  if (!parts.length)
    return failure.outcome === "joined" ? "A restart that was under way took it along." : `Restarted${after}.`;
  return `Restarted${after}: ${parts.length === 1 ? "vertex" : "vertices"} ${parts.join(", ")}.`;
}
