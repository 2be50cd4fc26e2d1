/** Why nothing comes out, or why it is slow: what `flowrun why` finds in the job. */

import { h } from "./dom.js";
import { plain, word } from "./format.js";
import { icon } from "./icons.js";

const SIGNS = { error: "cross", warning: "warning", info: "dot" };
const LOOKS = { blocks: "error", loses: "error", slows: "warning", risks: "warning", informs: "info" };

export function findingsView(state, act) {
  const { findings } = state;
  if (findings.state === "loading") return h("p.empty", { key: "findings" }, "Looking for what is wrong …");
  if (findings.state === "failed")
    return h("p.note.bad", { key: "findings" }, icon("warning"), h("span", null, plain(findings.message, 1000)));
  if (!findings.list.length)
    return h(
      "section.panel",
      { key: "findings" },
      h("p.empty", null, icon("check"), " ", h("bdi", null, plain(findings.summary, 2000))),
    );
  return h(
    "section.stack",
    { key: "findings", "aria-label": "Findings" },
    h("p.quiet", { key: "summary" }, h("bdi", null, plain(findings.summary, 2000))),
    findings.list.map((f, i) =>
      h(
        `article.finding.${LOOKS[f.severity] ?? "info"}`,
        { key: `${f.kind}-${i}` },
        h(
          "header",
          null,
          icon(SIGNS[LOOKS[f.severity]] ?? "dot"),
          h("h3", null, h("bdi", null, plain(f.title, 400))),
          h("span.quiet", null, word(f.severity)),
        ),
        h("p", null, h("bdi", null, plain(f.text, 4000))),
        f.remedy && h("p.remedy", null, h("b", null, "What to do: "), h("bdi", null, plain(f.remedy, 2000))),
        h(
          "p.vertices",
          null,
          f.vertices.map((id) => vertexLink(id, state, act)),
        ),
      ),
    ),
  );
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
