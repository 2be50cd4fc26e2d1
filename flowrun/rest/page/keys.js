/** Single keys that do what buttons do; not while something is typed, and not with Ctrl, Alt or Meta. */

import { zoom } from "./graph_view.js";
import { shownTabs } from "./job_view.js";

/** Listens to the whole page. */
export function listenToKeys(state, act) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    if (event.target.closest?.("input, textarea, select, dialog")) return;
    const does = keyed(event.key, state, act);
    if (!does) return;
    event.preventDefault();
    does();
  });
}

function keyed(key, state, act) {
  const everywhere = { "?": () => act.openDialog("keys"), j: () => act.go("#/jobs"), t: () => act.nextTheme() };
  if (key in everywhere) return everywhere[key];
  if (state.route.view !== "job" || !state.job) return null;
  const tab = shownTabs(state).find(([, , letter]) => letter === key);
  if (tab) return () => act.open(tab[0]);
  const inGraph = {
    "+": () => act.change((s) => zoom(s, 1.25)),
    "=": () => act.change((s) => zoom(s, 1.25)),
    "-": () => act.change((s) => zoom(s, 0.8)),
    0: () => act.change((s) => (s.graph.moved = null)),
    x: () => act.change((s) => (s.side = s.side === "text" ? "" : "text")),
  };
  if (state.route.tab === "graph" && key in inGraph) return inGraph[key];
  if (key === "Escape" && state.selected) return () => act.select(null);
  if (key === "s" && !state.job.isOver && state.connection.state === "live") return () => act.openDialog("savepoint");
  return null;
}
