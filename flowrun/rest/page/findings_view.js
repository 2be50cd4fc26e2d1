/** Why nothing comes out, or why it is slow: what `flowrun why` finds in the job. */

import { h } from "./dom.js";
import { plain } from "./format.js";
import { icon } from "./icons.js";

/** What a finding means for the rows: its sign, its colour and its words. */
const KINDS = {
  blocks: ["cross", "bad", "Rows do not come out"],
  loses: ["cross", "bad", "Rows are left out"],
  slows: ["warning", "warning", "Slow"],
  risks: ["warning", "warning", "May become a problem"],
  informs: ["dot", "info", "For your information"],
};

export function findingsView(state, act) {
  const { findings } = state;
  if (findings.state === "loading") return h("p.empty", { key: "findings" }, "Looking for what is wrong …");
  if (findings.state === "failed")
    return h("p.note.bad", { key: "findings" }, icon("warning"), h("span", null, plain(findings.message, 1000)));
  if (!findings.list.length) {
    return h("section.panel", { key: "findings" }, h("p.empty", null, icon("check"), " ", sentence(findings.summary)));
  }
  return h(
    "section.stack",
    { key: "findings", "aria-label": "Findings" },
    h("p.quiet", null, sentence(findings.summary)),
    findings.list.map((f, i) => card(f, i, state, act)),
  );
}

function card(f, i, state, act) {
  const [sign, color, words] = KINDS[f.severity] ?? KINDS.informs;
  return h(
    `article.finding.${color}`,
    { key: `${f.kind}-${i}` },
    h(
      "header",
      null,
      icon(sign),
      h("h3", null, h("bdi", null, sentence(plain(f.title, 400)))),
      h("span.quiet", null, words),
    ),
    h("p", null, h("bdi", null, sentence(plain(f.text, 4000)))),
    f.remedy && h("p", null, h("b", null, "What to do: "), h("bdi", null, plain(f.remedy, 2000))),
    h(
      "p.vertices",
      null,
      f.vertices.map((id) => vertexLink(id, state, act)),
    ),
  );
}

/** A text that begins large. */
function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function vertexLink(id, state, act) {
  const vertex = state.job.byId.get(id);
  if (!vertex) return null;
  return h(
    "button.link",
    { key: id, type: "button", on: { click: () => act.select(id, "findings") } },
    h("span.number", null, vertex.number),
    " ",
    h("bdi", null, plain(vertex.title, 100)),
  );
}
