/** The page: what it knows, what the user may do, and which view is drawn. Everything else is told what to draw and is asked to. */

import { takeToken } from "./api.js";
import { actions } from "./actions.js";
import { dialogView, toasts } from "./dialogs.js";
import { h, render } from "./dom.js";
import { plain } from "./format.js";
import { History } from "./history.js";
import { jobView } from "./job_view.js";
import { jobsView } from "./jobs_view.js";
import { listenToKeys } from "./keys.js";
import { followLog } from "./log_view.js";
import { routeOf } from "./route.js";
import { bar, message } from "./shell.js";
import { following } from "./watch.js";

const root = document.getElementById("page");

/** All that the page knows. */
const state = {
  route: { view: "start" },
  theme: localStorage.getItem("flowrun.theme") ?? "system",
  connection: { state: "loading", seenMs: null, message: "" },
  now: Date.now(),
  jobs: null,
  job: null,
  missing: "",
  newer: null,
  history: new History(),
  text: { state: "loading", text: "", file: "", language: "text", message: "" },
  settings: { state: "loading", groups: [], message: "" },
  findings: { state: "loading", summary: "", list: [], message: "" },
  log: { state: "loading", lines: [], message: "", follows: true },
  graph: { view: { width: 700, height: 480 }, moved: null, at: null, focus: null },
  side: "text",
  selected: null,
  lit: null,
  sampled: null,
  opened: null,
  dialog: null,
  stopHow: null,
  toasts: [],
};

let drawsSoon = false;

function change(does) {
  does(state);
  if (drawsSoon) return;
  drawsSoon = true;
  requestAnimationFrame(draw);
}

function draw() {
  drawsSoon = false;
  document.documentElement.dataset.theme = state.theme;
  document.title = state.job && state.route.view === "job" ? `${plain(state.job.name, 60)} · flowrun` : "flowrun";
  render(
    root,
    bar(state, act),
    h("main", { key: "main", id: "main", tabindex: "-1" }, view()),
    dialogView(state, act),
    toasts(state, act),
  );
  if (state.route.tab === "log") followLog(state);
}

function view() {
  const { route, connection, jobs, job } = state;
  if (state.missing)
    return message(
      "Not here",
      state.missing,
      h("p", { key: "back" }, h("a", { href: "#/jobs" }, "All jobs of this server")),
    );
  if (connection.state === "unauthorized")
    return message(
      "Locked",
      connection.message,
      h(
        "p",
        { key: "unlock" },
        h("button.primary", { type: "button", on: { click: () => act.openDialog("token") } }, "Enter the token"),
      ),
    );
  if (connection.state === "lost" && !(route.view === "job" ? job : jobs))
    return message("No answer", "The server does not answer. The page goes on asking.");
  return route.view === "job" ? jobView(state, act) : jobsView(state);
}

const watch = following(state, change);
const act = actions(state, change, watch);

function arrive() {
  takeToken();
  const route = routeOf(location.hash);
  change((s) => {
    if (route.job !== s.route.job || s.route.view !== route.view) act.forget(s);
    s.route = route;
  });
  watch.begin();
}

window.addEventListener("hashchange", arrive);
listenToKeys(state, act);
arrive();
