/** What the user may do. Each action changes the state; `change` draws it. */

import { ask, keepToken, path } from "./api.js";
import { focusVertex } from "./graph_view.js";
import { History } from "./history.js";
import { addressOf } from "./route.js";
import { nextTheme } from "./shell.js";
import { showLine } from "./text_view.js";

const ORDER_MS = 400;
const SAMPLE_S = 30;
const NEWS_MS = 8_000;
const ENDED = { stop: "The job's process has ended", cancel: "The job's process has ended" };
const WORDS = {
  savepoint: ["Taking a savepoint …", "The savepoint is complete", "No savepoint was taken"],
  stop: ["Stopping the job …", "The job has stopped", "The job was not stopped"],
  cancel: ["Cancelling the job …", "The job is cancelled", "The job was not cancelled"],
  rescale: ["Rescaling the job …", "The job is rescaled", "The job was not rescaled"],
};

/**
 * All actions.
 *
 * @param {object} state of the page.
 * @param {(does: (state: object) => void) => void} change changes the state and has it drawn.
 * @param {{begin: () => void, now: () => void}} watch asks the server.
 */
export function actions(state, change, watch) {
  let news = 0;
  const soon = (does) => requestAnimationFrame(() => requestAnimationFrame(does));

  const tell = (toast) => {
    const id = ++news;
    change((s) => s.toasts.push({ id, ...toast }));
    return id;
  };
  const retell = (id, toast) => {
    change((s) => (s.toasts = s.toasts.map((t) => (t.id === id ? { id, ...toast } : t))));
    if (toast.kind === "done") setTimeout(() => act.dismiss(id), NEWS_MS);
  };

  const act = {
    change,
    go: (hash) => (location.hash = hash),
    open: (tab) => (location.hash = addressOf(state.route.job, tab)),

    /** Open a vertex, or close it with null. `from` is where it was chosen: the text stays open then, other views give way. */
    select(id, from = "graph") {
      change((s) => {
        s.selected = id;
        if (id === null) {
          s.side = "text";
          s.graph.focus ??= null;
          return;
        }
        s.graph.focus = id;
        if (from !== "text") s.side = "vertex";
      });
      if (id === null) {
        if (state.graph.focus) soon(() => focusVertex(state.graph.focus));
        return;
      }
      if (state.route.tab !== "graph") act.open("graph");
      if (from !== "text") soon(() => showPanel());
      else soon(() => showLine(state.job, id));
    },
    /** Have the last rows of an exchange shown, or none with null; asked for again as long as they are shown. */
    sample(exchange) {
      const before = state.sampled;
      change((s) => (s.sampled = exchange));
      if (before && before !== exchange) watch.sample(before, 0);
      if (exchange) watch.sample(exchange, SAMPLE_S);
    },
    light: (id) => change((s) => (s.lit = id)),
    focus: (id) => {
      change((s) => (s.graph.focus = id));
      soon(() => focusVertex(id));
    },
    /** Show a line of the text, and mark the vertex. */
    showLine(id, line) {
      change((s) => {
        s.selected = id;
        s.side = "text";
      });
      soon(() => showLine(state.job, id, line));
    },

    nextTheme() {
      change((s) => (s.theme = nextTheme(s.theme)));
      localStorage.setItem("flowrun.theme", state.theme);
    },
    openDialog: (name) => change((s) => (s.dialog = name)),
    dismiss: (id) => change((s) => (s.toasts = s.toasts.filter((t) => t.id !== id))),
    unlock(token) {
      keepToken(token);
      change((s) => {
        s.dialog = null;
        s.connection = { state: "loading", seenMs: null, message: "" };
      });
      watch.begin();
    },

    /** Have an order carried out, and tell what becomes of it. */
    async order(order) {
      act.openDialog(null);
      const [begins, done, failed] = WORDS[order.kind];
      const news = tell({ kind: "busy", title: begins });
      const orders = path`/v1/jobs/${state.route.job}/orders`;
      try {
        const { order: number } = await ask(orders, { method: "POST", body: order });
        const answer = await outcome(`${orders}/${encodeURIComponent(number)}`);
        if (answer.state === "failed")
          retell(news, { kind: "bad", title: failed, text: answer.message, hint: answer.hint });
        else retell(news, { kind: "done", title: done, text: answer.path });
      } catch (error) {
        const isGone = error.kind === "unreachable" && order.kind in ENDED; // its process ended before it was asked again
        if (isGone) retell(news, { kind: "done", title: ENDED[order.kind] });
        else retell(news, { kind: "bad", title: failed, text: error.message, hint: error.hint });
      }
      watch.now();
    },

    /** What is known of one job only, when another is looked at. */
    forget(s) {
      s.job = null;
      s.missing = "";
      s.newer = null;
      s.history = new History();
      s.text = { state: "loading", text: "", file: "", language: "text", message: "" };
      s.settings = { state: "loading", groups: [], message: "" };
      s.findings = { state: "loading", summary: "", list: [], message: "" };
      s.log = { state: "loading", lines: [], message: "", follows: true };
      s.selected = s.lit = s.sampled = s.opened = s.dialog = null;
      s.graph = { ...s.graph, moved: null, focus: null };
      s.connection = { state: "loading", seenMs: null, message: "" };
    },
  };
  return act;
}

async function outcome(address) {
  for (;;) {
    const answer = await ask(address);
    if (answer.state !== "pending") return answer;
    await new Promise((resume) => setTimeout(resume, ORDER_MS));
  }
}

/** On a narrow page the panel stands below the graph: go there. */
function showPanel() {
  const title = document.getElementById("vertex-title");
  if (!title) return;
  const { top } = title.getBoundingClientRect();
  if (top > innerHeight - 80 || top < 0) {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    title.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
  }
}
