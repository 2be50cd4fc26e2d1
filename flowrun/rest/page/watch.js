/** Asks the server for what the open view shows: each second, and while the page is seen. */

import { ask, path } from "./api.js";
import { word } from "./format.js";
import { jobOf, listedJob } from "./model.js";
import { poll } from "./poll.js";
import { addressOf } from "./route.js";

const OVERVIEW_MS = 1_000;
const JOBS_MS = 2_000;
const NEWER_MS = 2_000;
const FINDINGS_MS = 5_000;
const LOG_MS = 1_500;
const MOST_LINES = 1_000;

/**
 * Follows the view that is open.
 *
 * @returns {{begin: () => void, now: () => void}} `begin` after the view changed; `now` asks at once.
 */
export function following(state, change) {
  let running = [];
  let sampling = null;

  const start = (asks, everyMs) => running.push(poll(() => reported(asks), everyMs));
  const reported = async (asks) => {
    try {
      return await asks();
    } catch (error) {
      if (!error.kind) console.error(error);
      if (error.kind === "unauthorized") {
        change(
          (s) => (s.connection = { state: "unauthorized", seenMs: s.connection.seenMs, message: `${error.message}.` }),
        );
        return false;
      }
      if (!state.job?.isOver && state.connection.state !== "gone")
        change((s) => (s.connection = { ...s.connection, state: "lost", message: error.message }));
      throw error;
    }
  };
  const seen = (s, is = "live") => {
    s.now = Date.now();
    s.connection = { state: is, seenMs: s.now, message: "" };
  };

  const askJobs = async () => {
    const { jobs } = await ask("/v1/jobs");
    if (state.route.view === "start" && jobs.length === 1) {
      location.replace(addressOf(jobs[0].job_id));
      return false;
    }
    change((s) => {
      seen(s);
      const before = new Map((s.jobs ?? []).map((j) => [j.id, j]));
      s.jobs = jobs.map((j) => listedJob(j, before.get(j.job_id), s.now));
    });
    return true;
  };

  const askOverview = async () => {
    const id = state.route.job;
    let answer;
    try {
      answer = await ask(path`/v1/jobs/${id}/overview`);
    } catch (error) {
      if (error.kind !== "missing") throw error;
      if (state.job) change((s) => (s.connection.state = "gone"));
      else change((s) => (s.missing = `${error.message}.`));
      return false;
    }
    if (state.route.job !== id) return false;
    change((s) => {
      const job = jobOf(answer.details, answer.job, s.job);
      seen(s, job.isOver ? "ended" : "live");
      s.now = job.nowMs;
      s.job = job;
      s.history.add(job);
      if (s.selected && !job.byId.has(s.selected)) s.selected = null;
    });
    return !state.job.isOver;
  };

  /** After the job has ended: whether a newer run of its pipeline is here, as after `flowrun apply`. */
  const askNewer = async () => {
    const { job, connection } = state;
    if (!job || !(job.isOver || connection.state === "gone")) return true;
    const { jobs } = await ask("/v1/jobs");
    const newer = jobs.map((j) => listedJob(j, null, state.now)).filter((j) => j.name === job.name && !j.isOver);
    change((s) => (s.newer = newer.length ? newer.at(-1).id : null));
    return !newer.length;
  };

  /** Ask once for what belongs to a job; `missing` if this server has none of it. */
  const once = (part, address, take) => async () => {
    try {
      const answer = await ask(address);
      change((s) => {
        Object.assign(s[part], take(answer, s), { state: "ready", message: "" });
      });
    } catch (error) {
      if (error.kind === "unreachable" && state[part].state === "loading") throw error;
      change((s) => {
        if (s[part].state !== "ready")
          Object.assign(s[part], { state: error.kind === "missing" ? "missing" : "failed", message: error.message });
      });
    }
  };

  const begin = () => {
    for (const one of running) one.stop();
    running = [];
    const { route } = state;
    if (route.view !== "job") return start(askJobs, JOBS_MS);
    start(askOverview, OVERVIEW_MS);
    if (!state.newer) start(askNewer, NEWER_MS);
    const of = (part) => path`/v1/jobs/${route.job}/` + part;
    const onceOnly = (part, address, take) => {
      const asks = once(part, address, take);
      start(async () => {
        await asks();
        return false;
      }, OVERVIEW_MS);
    };
    if (state.text.state === "loading") onceOnly("text", of("text"), takeText);
    if (route.tab === "settings") onceOnly("settings", of("config"), takeSettings);
    const askWhy = once("findings", of("why"), ({ summary, findings }) => ({ summary, list: findings }));
    start(async () => {
      await askWhy();
      return route.tab === "findings" && !state.job?.isOver;
    }, FINDINGS_MS);
    if (route.tab === "log") followLog(of("logs"));
    return null;
  };

  const followLog = (address) => {
    start(async () => {
      const after = state.log.lines.at(-1)?.number ?? 0; // what came since
      await once("log", `${address}?after=${after}`, (answer, s) => ({
        lines: [...s.log.lines, ...answer.lines.map(logLine)].slice(-MOST_LINES),
      }))();
      return state.log.state !== "missing" && !state.job?.isOver;
    }, LOG_MS);
  };

  /** Keep the last rows of an exchange for some seconds, and longer while they are shown. */
  const sample = async (exchange, seconds) => {
    clearTimeout(sampling);
    const body = { exchange, seconds };
    try {
      await ask(path`/v1/jobs/${state.route.job}/samples`, { method: "POST", body });
    } catch (error) {
      if (error.kind !== "unreachable") change((s) => (s.sampled = null));
    }
    if (!seconds) return;
    sampling = setTimeout(() => {
      const isShown = state.sampled === exchange && !document.hidden && !state.job?.isOver;
      if (isShown) sample(exchange, seconds);
      else change((s) => (s.sampled = s.sampled === exchange ? null : s.sampled));
    }, seconds * 800);
  };

  return { begin, sample, now: () => running.forEach((one) => one.now()) };
}

function takeText({ text, file, language }) {
  return { text, file, language };
}

/** Settings by the part of their names before the first dot. */
function takeSettings({ settings, variables, overrides, withheld }) {
  const groups = new Map();
  for (const [name, value] of Object.entries(settings)) {
    const group = name.includes(".") ? name.split(".")[0] : "";
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push([name, value === null ? "off" : String(value)]);
  }
  const given = [...Object.entries(variables), ...withheld.map((name) => [name, "secret"])];
  return {
    groups: [
      ["Set on the command line", Object.entries(overrides)],
      ["Variables", given],
      ...[...groups].sort(([a], [b]) => (a < b ? -1 : 1)).map(([group, entries]) => [word(group) || "Job", entries]),
    ].filter(([, entries]) => entries.length),
  };
}

function logLine({ number, at_ms: atMs, level, logger, message }) {
  return { number, atMs, level, logger, text: message };
}
