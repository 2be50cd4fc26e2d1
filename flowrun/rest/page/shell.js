/** What all views share: the bar at the top, signs of state, figures, and what is shown while there is nothing. */

import { h } from "./dom.js";
import { clock, plain } from "./format.js";
import { icon } from "./icons.js";

const THEMES = [
  ["system", "system", "Colours as the system's"],
  ["light", "sun", "Light colours"],
  ["dark", "moon", "Dark colours"],
];

export function bar(state, act) {
  const { route, theme, job } = state;
  const [, sign, label] = THEMES.find(([name]) => name === theme);
  return h(
    "header.bar",
    { key: "bar" },
    h("a.brand", { href: "#/jobs", "aria-label": "flowrun: all jobs" }, mark(), h("span", null, "flowrun")),
    h(
      "nav.crumbs",
      { "aria-label": "Where you are" },
      h("a", { href: "#/jobs", "aria-current": route.view === "jobs" ? "page" : null }, "Jobs"),
      route.view === "job" && [
        icon("right"),
        h("bdi.crumb", { "aria-current": "page" }, plain(job?.name ?? route.job, 80)),
      ],
    ),
    connection(state),
    h(
      "button.square",
      {
        type: "button",
        title: `${label} (t)`,
        "aria-label": `${label}. Change (t)`,
        on: { click: () => act.nextTheme() },
      },
      icon(sign),
    ),
    h(
      "button.square",
      { type: "button", title: "Keys (?)", "aria-label": "Keys (?)", on: { click: () => act.openDialog("keys") } },
      icon("keys"),
    ),
  );
}

function mark() {
  return h(
    "svg.mark",
    { viewBox: "0 0 20 20", "aria-hidden": "true" },
    h("path", { d: "M3 5h6a3 3 0 0 1 3 3v4a3 3 0 0 0 3 3h2M3 10h4M3 15h6" }),
    h("path.head", { d: "m15 12 3 3-3 3" }),
  );
}

function connection({ connection: { state, seenMs } }) {
  const texts = {
    loading: "Connecting",
    live: "Live",
    lost: "No connection",
    gone: "Ended",
    ended: "Ended",
    unauthorized: "Locked",
  };
  const title = state === "lost" && seenMs ? `Last answer at ${clock(seenMs)}` : "";
  return h(`span.connection.${state}`, { title, role: "status" }, h("i", null), texts[state]);
}

/** A state as a word with a sign. */
export function chip({ kind, text }) {
  const signs = { good: "play", done: "check", busy: "wait", warning: "warning", bad: "cross", quiet: "pause" };
  return h(`span.chip.${kind}`, null, icon(signs[kind]), text);
}

/** One named figure of a list of them (`dl.figures`). */
export function figure(name, value, { kind = "", below = null, title = null } = {}) {
  return h(
    "div.figure",
    { key: name, class: kind, title },
    h("dt", null, name),
    h("dd", null, value, below && h("small", null, below)),
  );
}

/** A whole view that says why there is nothing else. */
export function message(title, text, ...more) {
  return h("section.message", { key: title }, h("h1", null, title), text && h("p", null, text), more);
}

/** Grey shapes where a view will be. */
export function skeleton() {
  return h(
    "div.skeleton",
    { key: "skeleton", "aria-label": "Loading", role: "status" },
    h("i.wide", null),
    h("i", null),
    h("i.tall", null),
  );
}

export function nextTheme(theme) {
  const names = THEMES.map(([name]) => name);
  return names[(names.indexOf(theme) + 1) % names.length];
}
