/** The job graph: boxes that say how busy their vertices are, and edges with what flows over them. */

import { h } from "./dom.js";
import { counted, percent, plain, rate } from "./format.js";
import { icon } from "./icons.js";
import { layOut, layOutFor } from "./layers.js";

const BOX = { width: 228, height: 104 };
const SMALL_BOX = { width: 164, height: 124 };
const GAPS = { layerGap: 84, layerGapRight: 128, nodeGap: 28 };
const SMALL_GAPS = { layerGap: 72, layerGapRight: 128, nodeGap: 14 };
const MOST_LABELS = 24;
const NARROW = "(max-width: 960px)";
const SMALLEST = 0.3;
const STEP = 1.25;

let last = { key: "", layout: null };
let canvas = null;

/** The layout of a graph in a view of this size; the same one as long as neither changes much. */
export function layoutOf(job, view) {
  const isNarrow = matchMedia(NARROW).matches;
  const shape = job.vertices.map((v) => v.id).join() + job.edges.map((e) => `${e.source}>${e.target}`).join();
  const key = `${isNarrow}${Math.round(view.width / 80)}x${Math.round(view.height / 80)}:${shape}`;
  if (last.key !== key) {
    const nodes = job.vertices.map((v) => ({ id: v.id, ...(isNarrow ? SMALL_BOX : BOX) }));
    const layout = isNarrow ? layOut(nodes, job.edges, SMALL_GAPS) : layOutFor(nodes, job.edges, view, GAPS);
    last = { key, layout };
  }
  return last.layout;
}

/** Where the scene stands in its view: scale and shift, fitted unless the user has moved it. */
function placement(state, layout) {
  const { view, moved } = state.graph; // on narrow pages the graph is as high as it needs to be, and the page scrolls
  const isNarrow = matchMedia(NARROW).matches;
  const margin = isNarrow ? 8 : 24;
  const wide = (view.width - 2 * margin) / layout.width;
  const high = isNarrow ? 1 : (view.height - 2 * margin - 36) / layout.height;
  const fitted = Math.max(isNarrow ? 0.66 : SMALLEST, Math.min(1, wide, high));
  const scale = moved?.scale ?? fitted;
  const height = isNarrow ? Math.max(200, layout.height * scale + 2 * margin + 44) : null;
  const x = moved?.x ?? Math.max(margin, (view.width - layout.width * scale) / 2);
  const room = height ?? view.height;
  const y = moved?.y ?? Math.max(margin, (room - 36 - layout.height * scale) / 2);
  return { scale, x, y, height };
}

export function graphView(state, act) {
  const { job } = state;
  const measured = (element) => {
    canvas = element;
    new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = element;
      if (width && (Math.abs(width - state.graph.view.width) > 2 || Math.abs(height - state.graph.view.height) > 2)) {
        act.change((s) => {
          s.graph.view = { width, height };
          if (s.graph.moved) s.graph.moved = null;
        });
      }
    }).observe(element);
    draggable(element, state, act);
  };
  if (!job.vertices.length) {
    return h("div.graph", { key: "graph" }, h("p.empty", null, "The job has no graph yet: it waits to be started."));
  }
  const layout = layoutOf(job, state.graph.view);
  const at = placement(state, layout);
  state.graph.at = at;
  return h(
    "div.graph",
    { key: "graph", style: at.height ? { height: `${Math.round(at.height)}px` } : {} },
    h(
      "div.canvas",
      {
        created: measured,
        role: "group",
        "aria-label": "Job graph. Arrow keys move along the edges, Enter opens a vertex.",
      },
      h(
        "div.scene",
        {
          style: {
            width: `${layout.width}px`,
            height: `${layout.height}px`,
            transform: `translate(${at.x}px, ${at.y}px) scale(${at.scale})`,
          },
        },
        edgesOf(job, layout, state),
        job.edges.map((edge) => edgeLabel(edge, layout, state)),
        job.vertices.map((vertex) => box(vertex, layout, state, act)),
      ),
    ),
    legend(),
    zoomButtons(state, act),
  );
}

function edgesOf(job, layout, state) {
  const most = Math.max(1, ...job.edges.map((e) => e.rate ?? 0));
  const near = (e) => state.selected === e.source || state.selected === e.target;
  return h(
    "svg.edges",
    { width: Math.ceil(layout.width), height: Math.ceil(layout.height), "aria-hidden": "true" },
    h(
      "defs",
      null,
      ["plain", "near", "pressed"].map((kind) =>
        h(
          "marker",
          {
            id: `arrow-${kind}`,
            class: `arrow ${kind}`,
            viewBox: "0 0 8 8",
            refX: "7",
            refY: "4",
            markerWidth: "9",
            markerHeight: "9",
            markerUnits: "userSpaceOnUse",
            orient: "auto",
          },
          h("path", { d: "M0.5 0.8 7.5 4 0.5 7.2Z" }),
        ),
      ),
    ),
    job.edges.map((edge) => {
      const drawn = layout.edges.get(edge.id);
      if (!drawn) return null;
      const source = job.byId.get(edge.source);
      const kind = source?.load === "back-pressured" ? "pressed" : near(edge) ? "near" : "plain";
      const width = 1.5 + 1.8 * Math.sqrt((edge.rate ?? 0) / most);
      return h("path.edge", {
        key: edge.id,
        class: kind,
        d: drawn.path,
        "marker-end": `url(#arrow-${kind})`,
        style: { "stroke-width": `${width.toFixed(1)}px` },
      });
    }),
  );
}

function edgeLabel(edge, layout, state) {
  const { job } = state;
  const drawn = layout.edges.get(edge.id);
  if (!drawn) return null;
  const isNear = state.selected === edge.source || state.selected === edge.target;
  if (job.edges.length > MOST_LABELS && !isNear) return null;
  return h(
    "span.edge-label",
    {
      key: `label-${edge.id}`,
      class: isNear ? "near" : "",
      style: { left: `${drawn.label.x}px`, top: `${drawn.label.y}px` },
      title: edge.describes,
      "aria-hidden": "true",
    },
    h("b", null, plain(edge.partitioner, 24)),
    edge.rate !== null && h("span", null, rate(edge.rate)),
  );
}

function box(vertex, layout, state, act) {
  const place = layout.nodes.get(vertex.id);
  const isOpen = state.selected === vertex.id;
  const isLit = state.lit === vertex.id;
  const first = state.graph.focus ?? state.selected ?? state.job.vertices[0].id;
  return h(
    "button.vertex",
    {
      key: vertex.id,
      class: [isOpen ? "open" : "", isLit ? "lit" : "", `load-${vertex.load}`, `is-${vertex.stateKind}`].join(" "),
      type: "button",
      id: `vertex-${vertex.number}`,
      "data-vertex": vertex.id,
      tabindex: first === vertex.id ? "0" : "-1",
      "aria-expanded": String(isOpen),
      "aria-label": spoken(vertex, state.job),
      style: {
        left: `${place.x}px`,
        top: `${place.y}px`,
        width: `${place.width}px`,
        height: `${place.height}px`,
        "--busy-part": String(Math.round((vertex.busy ?? 0) * 100)),
        "--pressed-part": String(Math.round((vertex.backPressured ?? 0) * 100)),
      },
      on: {
        click: () => act.select(isOpen ? null : vertex.id),
        focus: () => act.change((s) => reveal(s, vertex.id)),
        keydown: (event) => moveFocus(event, vertex.id, state, act),
        pointerenter: () => act.light(vertex.id),
        pointerleave: () => act.light(null),
      },
    },
    h(
      "span.vertex-head",
      null,
      h("span.number", null, vertex.number),
      h("bdi.vertex-name", { title: plain(vertex.name, 400) }, plain(vertex.title, 160)),
      h("span.times", { title: counted(vertex.parallelism, "subtask") }, `×${vertex.parallelism}`),
    ),
    h("bdi.vertex-operators", null, plain(vertex.subtitle, 200) || "\u00a0"),
    h(
      "span.vertex-rates",
      null,
      h("span", null, h("i", null, vertex.isSource ? "read " : "in "), rate(vertex.rateIn)),
      h("span", null, h("i", null, vertex.isLast ? "written " : "out "), rate(vertex.rateOut)),
    ),
    loadBar(vertex),
    h("span.load-text", null, loadText(vertex)),
  );
}

/** A bar of busy, back-pressured and idle time; the rest is not known. */
export function loadBar({ busy, backPressured, idle }) {
  const part = (kind, share) =>
    h(`span.${kind}`, { key: kind, style: { width: `${((share ?? 0) * 100).toFixed(1)}%` } });
  return h(
    "span.load-bar",
    { "aria-hidden": "true" },
    part("busy", busy),
    part("pressed", backPressured),
    part("idle", idle),
  );
}

/** The load in words, so that colour is never alone. */
export function loadText(vertex) {
  if (vertex.stateKind !== "running") return vertex.stateText;
  if (vertex.busy === null) return "No measure yet";
  if (vertex.backPressured >= 0.1)
    return `${percent(vertex.backPressured)} back-pressured · ${percent(vertex.busy)} busy`;
  return vertex.busy < 0.01 ? "Idle" : `${percent(vertex.busy)} busy`;
}

function spoken(vertex, job) {
  const names = (ids) => ids.map((id) => job.byId.get(id)?.number).join(", ");
  const before = job.edges.filter((e) => e.target === vertex.id).map((e) => e.source);
  const behind = job.edges.filter((e) => e.source === vertex.id).map((e) => e.target);
  return [
    `Vertex ${vertex.number}, ${plain(vertex.title, 80)}`,
    counted(vertex.parallelism, "subtask"),
    loadText(vertex),
    before.length ? `reads from ${names(before)}` : "a source",
    behind.length ? `writes to ${names(behind)}` : "a sink",
  ].join("; ");
}

/** The vertex that an arrow key leads to from this one; null: none is there. Pure. */
export function neighbour(layout, edges, id, key) {
  const turned = layout.direction === "right";
  const forwards = turned ? "ArrowRight" : "ArrowDown";
  const backwards = turned ? "ArrowLeft" : "ArrowUp";
  const across = turned ? (p) => p.y + p.height / 2 : (p) => p.x + p.width / 2;
  const here = layout.nodes.get(id);
  const nearest = (ids) =>
    ids
      .filter((i) => layout.nodes.has(i))
      .sort(
        (a, b) =>
          Math.abs(across(layout.nodes.get(a)) - across(here)) - Math.abs(across(layout.nodes.get(b)) - across(here)),
      )[0] ?? null;
  if (key === forwards) return nearest(edges.filter((e) => e.source === id).map((e) => e.target));
  if (key === backwards) return nearest(edges.filter((e) => e.target === id).map((e) => e.source));
  const step = key === (turned ? "ArrowUp" : "ArrowLeft") ? -1 : 1;
  const layer = [...layout.nodes]
    .filter(([, p]) => p.layer === here.layer)
    .sort(([, a], [, b]) => across(a) - across(b));
  return layer[layer.findIndex(([i]) => i === id) + step]?.[0] ?? null;
}

function moveFocus(event, id, state, act) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const { vertices } = state.job;
  let target = null;
  if (event.key.startsWith("Arrow")) target = neighbour(last.layout, state.job.edges, id, event.key);
  else if (event.key === "Home") target = vertices[0].id;
  else if (event.key === "End") target = vertices.at(-1).id;
  else return;
  event.preventDefault();
  if (target !== null) act.focus(target);
}

/** Remember where the focus is, and move the scene so that the vertex is seen. */
function reveal(state, id) {
  state.graph.focus = id;
  const { at, view } = state.graph;
  const place = last.layout?.nodes.get(id);
  if (!at || !place) return;
  const shift = (start, size, room) =>
    start < 8 ? 8 - start : start + size > room - 8 ? Math.max(8 - start, room - 8 - start - size) : 0;
  const dx = shift(place.x * at.scale + at.x, place.width * at.scale, view.width);
  const dy = at.height ? 0 : shift(place.y * at.scale + at.y, place.height * at.scale, view.height);
  if (dx || dy) state.graph.moved = { scale: at.scale, x: at.x + dx, y: at.y + dy };
}

/** Zoom by a factor around the middle of the view, or around a point of it. */
export function zoom(state, factor, point = null) {
  const { at, view } = state.graph;
  if (!at) return;
  const scale = Math.min(2, Math.max(SMALLEST, at.scale * factor));
  const by = scale / at.scale;
  const { x, y } = point ?? { x: view.width / 2, y: (at.height ?? view.height) / 2 };
  state.graph.moved = { scale, x: x - (x - at.x) * by, y: y - (y - at.y) * by };
}

function draggable(element, state, act) {
  let from = null;
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button")) return;
    from = { x: event.clientX, y: event.clientY, at: state.graph.at };
    element.setPointerCapture(event.pointerId);
    element.classList.add("dragged");
  });
  element.addEventListener("pointermove", (event) => {
    if (!from) return;
    const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
    act.change(
      (s) => (s.graph.moved = { scale: from.at.scale, x: from.at.x + dx, y: from.at.y + (from.at.height ? 0 : dy) }),
    );
  });
  const end = () => {
    from = null;
    element.classList.remove("dragged");
  };
  element.addEventListener("pointerup", end);
  element.addEventListener("pointercancel", end);
  element.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const frame = element.getBoundingClientRect();
      const point = { x: event.clientX - frame.x, y: event.clientY - frame.y };
      act.change((s) => zoom(s, Math.exp(-event.deltaY / 300), point));
    },
    { passive: false },
  );
  element.addEventListener("scroll", () => element.scrollTo(0, 0)); // what has the focus is moved into view by `reveal`
}

/** Put the focus on a vertex. */
export function focusVertex(id) {
  canvas?.querySelector(`[data-vertex="${CSS.escape(id)}"]`)?.focus({ preventScroll: true });
}

function legend() {
  return h(
    "p.legend",
    { "aria-hidden": "true" },
    h("span", null, h("i.busy", null), "Busy"),
    h("span", null, h("i.pressed", null), "Back-pressured"),
    h("span", null, h("i.idle", null), "Idle"),
  );
}

function zoomButtons(state, act) {
  const button = (name, label, does) =>
    h(
      "button.square",
      { type: "button", title: label, "aria-label": label, on: { click: () => act.change(does) } },
      icon(name),
    );
  return h(
    "div.zoom",
    null,
    button("plus", "Zoom in (+)", (s) => zoom(s, STEP)),
    button("minus", "Zoom out (−)", (s) => zoom(s, 1 / STEP)),
    button("fit", "Fit the graph (0)", (s) => (s.graph.moved = null)),
  );
}
