/** The newest lines of a job's log. */

import { h } from "./dom.js";
import { clock, plain } from "./format.js";
import { icon } from "./icons.js";

export function logView(state, act) {
  const { log } = state;
  if (log.state === "failed")
    return h("p.note.bad", { key: "log" }, icon("warning"), h("span", null, plain(log.message, 1000)));
  if (!log.lines.length)
    return h(
      "section.panel",
      { key: "log" },
      h("p.empty", null, log.state === "loading" ? "Loading the log …" : "The job has logged nothing yet."),
    );
  return h(
    "section.stack",
    { key: "log" },
    h(
      "label.follow",
      null,
      h("input", {
        type: "checkbox",
        checked: log.follows,
        on: { change: (event) => act.change((s) => (s.log.follows = event.target.checked)) },
      }),
      " Follow the end",
    ),
    h(
      "ol.log",
      { tabindex: "0", role: "log", "aria-label": "Log", "aria-live": "off" },
      log.lines.map((line) =>
        h(
          "li",
          { key: line.number, class: `level-${line.level.toLowerCase()}` },
          h("time", null, clock(line.atMs)),
          h("b", null, line.level),
          h("bdi", null, plain(line.text, 8000)),
        ),
      ),
    ),
  );
}

/** Move the log to its end if it is to be followed. */
export function followLog(state) {
  const element = document.querySelector(".log");
  if (element && state.log.follows) element.scrollTop = element.scrollHeight;
}
