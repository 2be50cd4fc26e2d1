/** The pipeline's SQL or YAML beside the graph; lines in which operators stand lead to their vertices and back. */

import { h } from "./dom.js";
import { plain } from "./format.js";
import { highlight } from "./highlight.js";

const MOST_LINES = 5_000;
let cached = { text: null, lines: [] };

function linesOf({ text, language }) {
  if (cached.text !== text) cached = { text, lines: highlight(text, language).slice(0, MOST_LINES) };
  return cached.lines;
}

export function textView(state, act) {
  const { text, job } = state;
  if (text.state === "loading") return h("p.empty", null, "Loading the pipeline's text …");
  if (text.state === "failed") return h("p.empty", null, plain(text.message, 500));
  const lines = linesOf(text);
  const marks = job.lines;
  return h(
    "div.code",
    { tabindex: "0", role: "region", "aria-label": `Text of ${plain(text.file, 200)}` },
    h(
      "ol.lines",
      null,
      lines.map((pieces, i) => line(i + 1, pieces, marks.get(i + 1) ?? [], state, act)),
    ),
    text.text.split("\n").length > MOST_LINES &&
      h("p.empty", null, `The first ${MOST_LINES.toLocaleString("en")} lines are shown.`),
  );
}

function line(number, pieces, vertices, state, act) {
  const isOpen = vertices.includes(state.selected);
  const isLit = vertices.includes(state.lit);
  const begins = (id) => state.job.byId.get(id)?.operators[0].line === number;
  const target = isOpen ? state.selected : (vertices.find(begins) ?? vertices[0]);
  return h(
    "li.line",
    {
      key: number,
      "data-line": number,
      class: [vertices.length ? "step" : "", isOpen ? "open" : "", isLit ? "lit" : ""].join(" "),
      on: vertices.length
        ? {
            click: () => act.select(target, "text"),
            pointerenter: () => act.light(target),
            pointerleave: () => act.light(null),
          }
        : {},
    },
    h("span.line-number", { "aria-hidden": "true" }, number),
    h(
      "span.marks",
      null,
      vertices.slice(0, 3).map((id) => mark(id, number, state, act)),
    ),
    h(
      "code",
      null,
      pieces.length ? pieces.map((p) => (p.kind ? h(`span.${p.kind}`, null, plain(p.text)) : plain(p.text))) : " ",
    ),
  );
}

function mark(id, number, state, act) {
  const vertex = state.job.byId.get(id);
  if (!vertex) return null;
  return h(
    "button.number",
    {
      key: id,
      type: "button",
      class: state.selected === id ? "open" : "",
      title: `Vertex ${vertex.number}: ${plain(vertex.title, 200)}`,
      "aria-label": `Line ${number}: open vertex ${vertex.number}, ${plain(vertex.title, 80)}`,
      on: {
        click: (event) => {
          event.stopPropagation();
          act.select(id, "text");
        },
      },
    },
    vertex.number,
  );
}

/** Move the first line of a vertex, or the line of that number, into view. */
export function showLine(job, vertexId, number = null) {
  const first = number ?? Math.min(...[...job.lines].filter(([, ids]) => ids.includes(vertexId)).map(([n]) => n));
  if (!Number.isFinite(first)) return;
  const element = document.querySelector(`.line[data-line="${first}"]`);
  const frame = element?.closest(".code");
  if (!frame) return;
  const top = element.offsetTop - frame.clientHeight / 3;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  frame.scrollTo({ top, behavior: calm ? "auto" : "smooth" });
}
