/**
 * Lays out a directed graph in layers, after Sugiyama, Tagawa and Toda (1981): longest paths give the layers, medians of
 * neighbours the order within them, and a least-squares fit the places. Long edges get a lane of their own through each layer
 * that they pass, so that no edge runs behind a box.
 *
 * Everything here is a function of values; nothing knows of the page.
 */

const LANE = 14;
const SWEEPS = 12;
const FITS = 10;

/**
 * Gives places to boxes and routes to edges.
 *
 * @param {{id: string, width: number, height: number}[]} nodes
 * @param {{id: string, source: string, target: string}[]} edges those that name no known node are left out.
 * @param {{direction?: "down"|"right", layerGap?: number, nodeGap?: number}} options lengths are pixels.
 * @returns {{nodes: Map, edges: Map, width: number, height: number, direction: string, crossings: number}} `nodes`: id →
 *   {x, y, width, height, layer, order}; `edges`: id → {path, label: {x, y}}, `path` being the `d` of an SVG path.
 */
export function layOut(nodes, edges, { direction = "down", layerGap = 64, nodeGap = 28 } = {}) {
  const down = direction === "down";
  const graph = withLanes(nodes, edges, down);
  const layers = ordered(graph);
  placeAcross(graph, layers, nodeGap);
  const starts = placeAlong(layers, layerGap);
  return drawing(graph, layers, starts, down);
}

/** The better of both directions in a view of this size: that which has to be shrunk less. */
export function layOutFor(nodes, edges, view, options = {}) {
  const both = ["down", "right"].map((direction) => {
    const layerGap = direction === "down" ? options.layerGap : (options.layerGapRight ?? options.layerGap);
    return layOut(nodes, edges, { ...options, layerGap, direction });
  });
  const scale = (found) => Math.min(1, view.width / found.width, view.height / found.height);
  return scale(both[1]) > scale(both[0]) * 1.15 ? both[1] : both[0];
}

/** Node id → layer, from 0: one behind the last of its inputs; a source stands right before what reads it first. */
export function layersOf(nodes, edges) {
  const outputs = new Map(nodes.map((n) => [n.id, []]));
  const missing = new Map(nodes.map((n) => [n.id, 0]));
  for (const e of edges) {
    outputs.get(e.source).push(e.target);
    missing.set(e.target, missing.get(e.target) + 1);
  }
  const isSource = new Map([...missing].map(([id, n]) => [id, n === 0]));
  const found = new Map(nodes.map((n) => [n.id, 0]));
  const ready = nodes.filter((n) => isSource.get(n.id)).map((n) => n.id);
  const done = new Set();
  while (done.size < nodes.length) {
    if (!ready.length) ready.push(nodes.find((n) => !done.has(n.id)).id); // a cycle: begin somewhere
    const id = ready.shift();
    if (done.has(id)) continue;
    done.add(id);
    for (const target of outputs.get(id)) {
      if (!done.has(target)) found.set(target, Math.max(found.get(target), found.get(id) + 1));
      missing.set(target, missing.get(target) - 1);
      if (missing.get(target) === 0) ready.push(target);
    }
  }
  for (const { id } of nodes) {
    const behind = outputs.get(id).map((target) => found.get(target));
    if (isSource.get(id) && behind.length) found.set(id, Math.max(0, Math.min(...behind) - 1));
  }
  return found;
}

/** Boxes and lanes as points of a graph whose edges all lead from one layer to the next. */
function withLanes(nodes, edges, down) {
  const known = new Set(nodes.map((n) => n.id));
  const real = edges.filter((e) => known.has(e.source) && known.has(e.target) && e.source !== e.target);
  const layers = layersOf(nodes, real);
  const points = new Map();
  for (const n of nodes) {
    const [along, across] = down ? [n.height, n.width] : [n.width, n.height];
    points.set(n.id, {
      id: n.id,
      layer: layers.get(n.id),
      along,
      across,
      isLane: false,
      before: [],
      behind: [],
      center: 0,
    });
  }
  const routes = new Map();
  for (const e of real) {
    const isBack = layers.get(e.source) >= layers.get(e.target);
    const [from, to] = isBack ? [e.target, e.source] : [e.source, e.target];
    const route = [points.get(from)];
    for (let layer = layers.get(from) + 1; layer < layers.get(to); layer++) {
      const lane = {
        id: `${e.id}/${layer}`,
        layer,
        along: 0,
        across: LANE,
        isLane: true,
        before: [],
        behind: [],
        center: 0,
      };
      points.set(lane.id, lane);
      route.push(lane);
    }
    route.push(points.get(to));
    if (layers.get(from) === layers.get(to)) continue;
    for (let i = 1; i < route.length; i++) {
      route[i - 1].behind.push(route[i]);
      route[i].before.push(route[i - 1]);
    }
    routes.set(e.id, { edge: e, route, isBack });
  }
  return { points, routes };
}

/** Layers as lists of points, in the order of fewest crossings that was found. */
function ordered({ points }) {
  const layers = [];
  const seen = new Set();
  const visit = (point) => {
    if (seen.has(point)) return;
    seen.add(point);
    (layers[point.layer] ??= []).push(point);
    point.behind.forEach(visit);
  };
  const roots = [...points.values()].sort((a, b) => a.layer - b.layer);
  roots.forEach(visit);
  number(layers);
  let best = layers.map((layer) => [...layer]);
  let fewest = crossings(layers);
  for (let sweep = 0; sweep < SWEEPS && fewest > 0; sweep++) {
    const forwards = sweep % 2 === 0;
    const side = forwards ? "before" : "behind";
    for (const layer of forwards ? layers : [...layers].reverse()) {
      const wish = new Map(layer.map((p) => [p, p[side].length ? mean(p[side].map((q) => q.order)) : p.order]));
      layer.sort((a, b) => wish.get(a) - wish.get(b) || a.order - b.order);
      layer.forEach((p, i) => (p.order = i));
    }
    swapNeighbours(layers);
    const now = crossings(layers);
    if (now < fewest) {
      fewest = now;
      best = layers.map((layer) => [...layer]);
    }
  }
  number(best);
  return best;
}

function number(layers) {
  for (const layer of layers) layer.forEach((point, i) => (point.order = i));
}

/** Swaps neighbours wherever that takes crossings away. */
function swapNeighbours(layers) {
  for (const layer of layers) {
    for (let i = 0; i + 1 < layer.length; i++) {
      const [a, b] = [layer[i], layer[i + 1]];
      if (between(a, b) > between(b, a)) {
        [layer[i], layer[i + 1]] = [b, a];
        [a.order, b.order] = [i + 1, i];
      }
    }
  }
}

/** Crossings of the edges of two points of one layer if the first stands before the second. */
function between(first, second) {
  let found = 0;
  for (const side of ["before", "behind"]) {
    for (const p of first[side]) for (const q of second[side]) if (p.order > q.order) found++;
  }
  return found;
}

/** How many pairs of edges between neighbouring layers cross. */
function crossings(layers) {
  let found = 0;
  for (const layer of layers) {
    const ends = layer.flatMap((p) => p.behind.map((q) => q.order).sort((a, b) => a - b));
    for (let i = 0; i < ends.length; i++) for (let j = i + 1; j < ends.length; j++) if (ends[i] > ends[j]) found++;
  }
  return found;
}

/** Centres across the layers: near the mean of the neighbours, lanes straight, nothing overlapping. */
function placeAcross({ points }, layers, gap) {
  for (const layer of layers) {
    let at = 0;
    for (const p of layer) {
      p.center = at + p.across / 2;
      at += p.across + gap;
    }
  }
  for (let fit = 0; fit < FITS; fit++) {
    const forwards = fit % 2 === 0;
    for (const layer of forwards ? layers : [...layers].reverse()) {
      const wishes = layer.map((p) => wished(p, forwards ? "before" : "behind", fit >= FITS - 2));
      const gaps = layer.slice(1).map((p, i) => (p.across + layer[i].across) / 2 + gap);
      spread(wishes, gaps).forEach((center, i) => (layer[i].center = center));
    }
  }
  const least = Math.min(...[...points.values()].map((p) => p.center - p.across / 2));
  for (const p of points.values()) p.center -= least;
}

function wished(point, side, both) {
  const near = both ? [...point.before, ...point.behind] : point[side];
  const weigh = (q) => (point.isLane && q.isLane ? 8 : 1);
  const total = near.reduce((sum, q) => sum + weigh(q), 0);
  const at = total ? near.reduce((sum, q) => sum + weigh(q) * q.center, 0) / total : point.center;
  return { at, weight: point.isLane ? 4 : Math.max(1, near.length) };
}

/**
 * Places in the given order that keep the distances and are nearest to the wishes (weighted least squares): isotonic
 * regression by pooling adjacent violators.
 *
 * @param {{at: number, weight: number}[]} wishes
 * @param {number[]} gaps least distance of each from the one before it; one fewer than wishes.
 * @returns {number[]}
 */
export function spread(wishes, gaps) {
  const shifts = wishes.map(() => 0);
  for (let i = 1; i < wishes.length; i++) shifts[i] = shifts[i - 1] + gaps[i - 1];
  const pools = [];
  wishes.forEach((wish, i) => {
    let pool = { at: wish.at - shifts[i], weight: wish.weight, size: 1 };
    while (pools.length && pools.at(-1).at > pool.at) {
      const other = pools.pop();
      const weight = other.weight + pool.weight;
      pool = { at: (other.at * other.weight + pool.at * pool.weight) / weight, weight, size: other.size + pool.size };
    }
    pools.push(pool);
  });
  return pools.flatMap((pool) => Array(pool.size).fill(pool.at)).map((at, i) => at + shifts[i]);
}

/** Where each layer begins along the direction, and how thick it is. */
function placeAlong(layers, gap) {
  let at = 0;
  return layers.map((layer) => {
    const size = Math.max(LANE, ...layer.map((p) => p.along));
    const found = { at, size };
    at += size + gap;
    return found;
  });
}

function drawing({ points, routes }, layers, starts, down) {
  const nodes = new Map();
  for (const p of points.values()) {
    if (p.isLane) continue;
    const { at } = starts[p.layer];
    const across = p.center - p.across / 2;
    const box = down
      ? { x: across, y: at, width: p.across, height: p.along }
      : { x: at, y: across, width: p.along, height: p.across };
    nodes.set(p.id, { ...box, layer: p.layer, order: p.order });
  }
  const ports = portsOf(routes);
  const edges = new Map();
  for (const [id, { route, isBack }] of routes) edges.set(id, edgeOf(id, route, isBack, ports, starts, down));
  const end = starts.at(-1);
  const along = end ? end.at + end.size : 0;
  const across = Math.max(0, ...[...points.values()].map((p) => p.center + p.across / 2));
  return {
    nodes,
    edges,
    width: down ? across : along,
    height: down ? along : across,
    direction: down ? "down" : "right",
    crossings: crossings(layers),
  };
}

/** Edge id with end → how far from the middle of the box it is joined on, so that edges of one box stand side by side. */
function portsOf(routes) {
  const sides = new Map();
  const join = (point, end, id, next) => {
    const key = `${end}:${point.id}`;
    if (!sides.has(key)) sides.set(key, []);
    sides.get(key).push({ id, end, next, across: point.across });
  };
  for (const [id, { route }] of routes) {
    join(route[0], "out", id, route[1].center);
    join(route.at(-1), "in", id, route.at(-2).center);
  }
  const found = new Map();
  for (const side of sides.values()) {
    side.sort((a, b) => a.next - b.next);
    const step = Math.min(22, side[0].across / (side.length + 1));
    side.forEach(({ id, end }, i) => found.set(`${end}:${id}`, (i - (side.length - 1) / 2) * step));
  }
  return found;
}

function edgeOf(id, route, isBack, ports, starts, down) {
  const first = route[0];
  const last = route.at(-1);
  const stops = [[starts[first.layer].at + first.along, first.center + ports.get(`out:${id}`)]];
  for (const lane of route.slice(1, -1)) {
    const { at, size } = starts[lane.layer];
    stops.push([at, lane.center], [at + size, lane.center]);
  }
  stops.push([starts[last.layer].at, last.center + ports.get(`in:${id}`)]);
  if (isBack) stops.reverse();
  const text = ([along, across]) => (down ? `${round(across)} ${round(along)}` : `${round(along)} ${round(across)}`);
  let path = `M ${text(stops[0])}`;
  for (let i = 1; i < stops.length; i++) {
    const [a, b] = [stops[i - 1], stops[i]];
    if (a[1] === b[1]) path += ` L ${text(b)}`;
    else {
      const half = (a[0] + b[0]) / 2;
      path += ` C ${text([half, a[1]])}, ${text([half, b[1]])}, ${text(b)}`;
    }
  }
  const [a, b] = isBack ? [stops.at(-1), stops.at(-2)] : stops;
  const middle = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  return { path, label: down ? { x: middle[1], y: middle[0] } : { x: middle[0], y: middle[1] } };
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function round(value) {
  return Math.round(value * 10) / 10;
}
