/**
 * A job as its views see it, made of what the server tells (`JobDetails` of flowrun, by the names of its fields). Pure functions.
 * What is not known is null.
 */

import { word } from "./format.js";

const RECENT_MS = 5 * 60_000;
const FEW_ROWS = 1_000;
const PRESSED = 0.5;
const OVER = new Set(["finished", "canceled", "failed"]);
const FLOWS = new Set(["numRecordsIn", "numRecordsOut"]);
const HEALTH = {
  created: ["busy", "Starting"],
  running: ["good", "Running"],
  restarting: ["warning", "Restarting"],
  failing: ["bad", "Failing"],
  failed: ["bad", "Failed"],
  finished: ["done", "Finished"],
  cancelling: ["busy", "Cancelling"],
  canceled: ["quiet", "Cancelled"],
};
const STATES = { running: "running", finished: "done", failed: "failed", canceled: "done", canceling: "waits" };

/**
 * The job of an overview.
 *
 * @param {object} details `JobDetails`.
 * @param {object} known `JobAnswer`: name, file, and when it was started.
 * @param {object|null} before the job of the last overview, which rates are told by.
 */
export function jobOf(details, known, before = null) {
  const { status } = details;
  const seconds = before ? (status.at_ns - before.atNs) / 1e9 : 0;
  const checkpoints = checkpointsOf(details);
  const states = latestState(checkpoints);
  const numbers = new Map(details.vertices.map((v, i) => [v.status.vertex_id, i + 1]));
  const vertices = details.vertices.map((v) => vertexOf(v, numbers.get(v.status.vertex_id), states, before, seconds));
  const byId = new Map(vertices.map((v) => [v.id, v]));
  const read = new Set(details.exchanges.map((e) => e.source));
  for (const vertex of vertices) vertex.isLast = !read.has(vertex.id);
  const sources = vertices.filter((v) => v.isSource);
  const sinks = vertices.filter((v) => v.isSink);
  const written = sinks.flatMap((v) => v.operators.filter((o) => o.isSink));
  const lags = sinks.map((v) => v.lagMs).filter((ms) => ms !== null);
  const job = {
    id: status.job_id,
    name: known.name ?? status.name,
    file: known.file ?? "",
    state: status.state,
    isOver: OVER.has(status.state),
    atNs: status.at_ns,
    nowMs: details.now_ms,
    startedMs: known.started_ms ?? null,
    runningMs: status.running_ms,
    restarts: status.restarts,
    slots: status.slots,
    parallelism: details.parallelism,
    waitsFor: status.waits_for,
    lastFailure: status.last_failure,
    settings: details.settings,
    vertices,
    byId,
    edges: details.exchanges.map((e) => edgeOf(e, byId, details.vertices)),
    checkpoints,
    failures: failuresOf(details),
    lines: linesOf(vertices),
    vertexOfOperator: new Map(vertices.flatMap((v) => v.operators.map((o) => [o.id, v]))),
    operators: new Map(vertices.flatMap((v) => v.operators.map((o) => [o.id, o]))),
    rowsIn: sum(sources.map((v) => v.recordsIn)),
    rowsOut: sum(written.map((o) => o.recordsIn)),
    rateIn: sumOrNull(sources.map((v) => v.rateIn)),
    rateOut: sumOrNull(written.map((o) => o.rateIn)),
    lagMs: lags.length ? Math.max(...lags) : null,
  };
  return { ...job, health: healthOf(job) };
}

/** The short form of a job for the list, of a `JobAnswer`; `before` is the one of the last list. */
export function listedJob(given, before, nowMs) {
  const rows = given.rows_read;
  const since = before ? (nowMs - before.atMs) / 1000 : 0;
  const isOver = OVER.has(given.state);
  const now =
    before && before.rows !== null && rows >= before.rows && since > 0
      ? (rows - before.rows) / since
      : given.rows_per_s;
  const counts = given.checkpoints;
  const [kind, text] = HEALTH[given.state] ?? ["busy", word(given.state)];
  let health = { kind, text, why: "" };
  if (given.state === "running" && given.waits_for) health = { kind: "warning", text: "Waiting", why: given.waits_for };
  else if (given.state === "running" && counts?.failed > 0 && !counts.last)
    health = { kind: "warning", text: "No checkpoint", why: counts.last_failure ?? "" };
  return {
    id: given.job_id,
    name: given.name,
    file: given.file,
    isOver,
    rows,
    atMs: nowMs,
    rate: isOver ? null : now,
    runningMs: given.running_ms,
    restarts: given.restarts,
    checkpoints: counts
      ? { completed: counts.completed, failed: counts.failed, lastMs: counts.last?.triggered_ms ?? null }
      : null,
    health,
  };
}

function vertexOf(given, number, states, before, seconds) {
  const { status, operators, subtasks } = given;
  const old = before?.byId.get(status.vertex_id);
  const isSource = operators.some((o) => o.is_source);
  const isSink = operators.some((o) => o.is_sink);
  const measured = subtasks.some((s) => s.busy_ms_per_s + s.idle_ms_per_s + s.back_pressured_ms_per_s > 0);
  const parts = subtasks.map((s) => subtaskOf(s, old?.subtasks[s.subtask], seconds));
  const bytes = states.vertices.get(status.vertex_id) ?? null;
  const vertex = {
    id: status.vertex_id,
    number,
    name: status.name,
    ...titles(operators, status.name),
    parallelism: status.parallelism,
    maxParallelism: given.max_parallelism,
    isSource,
    isSink,
    busy: measured ? status.busy_ms_per_s / 1000 : null,
    idle: measured ? status.idle_ms_per_s / 1000 : null,
    backPressured: measured ? status.back_pressured_ms_per_s / 1000 : null,
    recordsIn: status.records_in,
    recordsOut: status.records_out,
    bytesIn: status.bytes_in,
    bytesOut: status.bytes_out,
    rateIn: rateOf(status.records_in, old?.recordsIn, seconds),
    rateOut: rateOf(status.records_out, old?.recordsOut, seconds),
    watermark: status.watermark,
    lagMs: status.watermark_lag_ms,
    stateBytes: bytes,
    skew: skewOf(parts),
    subtasks: parts,
    operators: operators.map((o) => operatorOf(o, subtasks, states, old, seconds)),
  };
  const state = vertexState(parts);
  return { ...vertex, ...state, load: loadOf(vertex) };
}

/** Keys that many rows of an exchange have, as its writers have sampled them, heaviest first: their part of those rows. */
function heavyKeysOf(exchange, subtasks) {
  const prefix = `heavyKey.${exchange}.`;
  const shares = new Map();
  for (const { gauges } of subtasks) {
    for (const [name, share] of Object.entries(gauges)) {
      if (name.startsWith(prefix) && share)
        shares.set(name.slice(prefix.length), [...(shares.get(name.slice(prefix.length)) ?? []), share]);
    }
  }
  const means = [...shares].map(([key, found]) => ({ key, share: sum(found) / subtasks.length }));
  return means.sort((a, b) => b.share - a.share).slice(0, 5);
}

function subtaskOf(given, old, seconds) {
  const same = old && old.attempt === given.attempt_id;
  return {
    index: given.subtask,
    attempt: given.attempt_id,
    state: given.state,
    stateKind: STATES[given.state] ?? "waits",
    place: given.worker,
    recordsIn: given.records_in,
    recordsOut: given.records_out,
    rateIn: same ? rateOf(given.records_in, old.recordsIn, seconds) : null,
    rateOut: same ? rateOf(given.records_out, old.recordsOut, seconds) : null,
    watermark: given.watermark,
    isAtEnd: given.is_at_end,
    busy: given.busy_ms_per_s / 1000,
    idle: given.idle_ms_per_s / 1000,
    backPressured: given.back_pressured_ms_per_s / 1000,
  };
}

function operatorOf(given, subtasks, states, oldVertex, seconds) {
  const counters = new Map();
  for (const subtask of subtasks) {
    const found = subtask.operators.find((o) => o.operator_id === given.operator_id);
    for (const [name, value] of Object.entries(found?.counters ?? {}))
      counters.set(name, (counters.get(name) ?? 0) + value);
  }
  const old = oldVertex?.operators.find((o) => o.id === given.operator_id);
  const recordsIn = counters.get("numRecordsIn") ?? 0;
  const recordsOut = counters.get("numRecordsOut") ?? 0;
  return {
    id: given.operator_id,
    name: given.name,
    isSink: given.is_sink,
    recordsIn,
    recordsOut,
    rateIn: rateOf(recordsIn, old?.recordsIn, seconds),
    rateOut: rateOf(recordsOut, old?.recordsOut, seconds),
    uid: given.uid,
    kind: given.connector ?? "",
    keys: given.key,
    line: given.line ?? null,
    columns: given.columns,
    stateBytes: states.operators.get(given.operator_id) ?? null,
    counters: [...counters]
      .filter(([name, value]) => value > 0 && !FLOWS.has(name))
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  };
}

/** What stands in the box of a vertex: its first operator, and those that are chained to it. */
function titles(operators, name) {
  if (!operators.length) return { title: name, subtitle: "" };
  const [head, ...others] = operators;
  const kind = head.is_source ? "Source" : head.is_sink ? "Sink" : "";
  return {
    title: head.name.replace(/^(Source|Sink): /, ""),
    subtitle: [kind, ...others.map((o) => o.name)].join(" → ").trim(),
  };
}

function vertexState(subtasks) {
  const counts = new Map();
  for (const s of subtasks) counts.set(s.state, (counts.get(s.state) ?? 0) + 1);
  const states = [...counts.keys()];
  if (states.length === 1) return { stateKind: STATES[states[0]] ?? "waits", stateText: word(states[0]) };
  const kind = counts.has("failed") ? "failed" : counts.has("running") ? "running" : "waits";
  return { stateKind: kind, stateText: [...counts].map(([state, n]) => `${n} ${state}`).join(", ") };
}

function loadOf({ busy, backPressured }) {
  if (busy === null) return "unknown";
  if (backPressured >= 0.1 && backPressured >= busy / 2) return "back-pressured";
  return busy < 0.01 ? "idle" : "busy";
}

function edgeOf(given, byId, vertices) {
  const subtasks = vertices.find((v) => v.status.vertex_id === given.source)?.subtasks ?? [];
  const writer = byId.get(given.source)?.operators.find((o) => o.id === given.operator_id);
  return {
    id: `${given.exchange_id}:${given.target}:${given.input_index}`,
    exchange: given.exchange_id,
    source: given.source,
    target: given.target,
    partitioner: given.partitioner.replace(/^[A-Z_]+/, (name) => name.toLowerCase()),
    describes: `${given.partitioner}, ${given.kind}`,
    columns: given.columns,
    rate: writer?.rateOut ?? null,
    heavyKeys: heavyKeysOf(given.exchange_id, subtasks),
    rows: subtasks.flatMap((s) => (s.rows[given.exchange_id] ?? []).map((text) => ({ subtask: s.subtask, text }))),
  };
}

function checkpointsOf({ status, checkpoints }) {
  if (!status.checkpoints) return null;
  const history = checkpoints.map(checkpointOf).reverse();
  return {
    completed: status.checkpoints.completed,
    failed: status.checkpoints.failed,
    inProgress: status.checkpoints.in_progress,
    lastFailure: status.checkpoints.last_failure,
    history,
  };
}

function checkpointOf(given) {
  return {
    id: given.checkpoint_id,
    kind: word(given.kind),
    isSavepoint: given.kind === "savepoint",
    status: given.status.replace(" ", "_"),
    triggeredMs: given.triggered_ms,
    durationMs: given.duration_ms,
    bytes: given.status === "failed" ? null : sum(given.vertices.map((v) => v.state_bytes)),
    acknowledged: given.acknowledged,
    subtasks: given.subtasks,
    path: given.path,
    failure: given.failure,
    vertices: given.vertices,
  };
}

/** Bytes of state by vertex and by operator, as the last checkpoint that is complete has them. */
function latestState(checkpoints) {
  const last = checkpoints?.history.find((c) => c.status === "completed");
  const parts = last?.vertices ?? [];
  return {
    vertices: new Map(parts.map((v) => [v.vertex_id, v.state_bytes])),
    operators: new Map(parts.flatMap((v) => v.operators.map((o) => [o.operator_id, o.state_bytes]))),
  };
}

function failuresOf({ failures }) {
  return failures
    .map((given, i) => {
      const root = given.error.links.at(-1);
      return {
        number: i + 1,
        atMs: given.at_ms,
        kind: root?.kind.split(".").at(-1) ?? "Error",
        message: root?.message || "No message",
        where: given.place,
        hint: given.error.links.map((l) => l.hint).find(Boolean) ?? "",
        vertexId: given.vertex_id,
        worker: given.worker,
        outcome: given.outcome,
        whyFailed: given.why_failed,
        restarted: given.restarted,
        delayMs: given.restart_delay_ms,
        trace: given.error.traceback,
      };
    })
    .reverse();
}

/** Line of the pipeline's text → ids of the vertices that have an operator of it. */
function linesOf(vertices) {
  const found = new Map();
  for (const vertex of vertices) {
    for (const { line } of vertex.operators) {
      if (line === null) continue;
      const there = found.get(line) ?? [];
      if (!there.includes(vertex.id)) found.set(line, [...there, vertex.id]);
    }
  }
  return found;
}

function healthOf(job) {
  const [kind, text] = HEALTH[job.state] ?? ["busy", word(job.state)];
  if (job.state !== "running") return { kind, text, why: "" };
  if (job.waitsFor) return { kind: "warning", text: "Waiting", why: "" };
  const last = job.checkpoints?.history.find((c) => c.status !== "in_progress" && c.status !== "abandoned");
  if (last?.status === "failed")
    return {
      kind: "warning",
      text: "Checkpoints fail",
      why: `The last checkpoint failed: ${last.failure ?? "no reason is known"}`,
    };
  const failure = job.failures[0];
  if (failure && job.nowMs - failure.atMs < RECENT_MS)
    return { kind: "warning", text: "Restarted", why: `Restarted lately: ${failure.message}` };
  const pressed = job.vertices.find((v) => v.backPressured >= PRESSED);
  if (pressed) return { kind: "good", text: "Back-pressured", why: "" };
  return { kind, text, why: "" };
}

/** Rows of the subtask with most over the mean; null if there is one only, or too few rows to tell. */
function skewOf(subtasks) {
  const rows = subtasks.map((s) => s.recordsIn);
  const total = sum(rows);
  return subtasks.length < 2 || total < FEW_ROWS ? null : Math.max(...rows) / (total / rows.length);
}

/** A second; null if the count began anew. */
function rateOf(now, before, seconds) {
  return before === undefined || seconds <= 0 || now < before ? null : (now - before) / seconds;
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function sumOrNull(values) {
  const known = values.filter((v) => v !== null);
  return known.length ? sum(known) : null;
}
