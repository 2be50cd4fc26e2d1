/** Addresses of views: `#/jobs`, `#/jobs/ID`, `#/jobs/ID/checkpoints`. Pure functions. */

const TABS = new Set(["graph", "checkpoints", "exceptions", "findings", "settings", "log"]);

/** The view of an address; of one that is none the start, which leads to the job if there is one only. */
export function routeOf(hash) {
  const [jobs, job, tab] = hash.replace(/^#\/?/, "").split("/");
  if (jobs !== "jobs") return { view: "start" };
  if (!job) return { view: "jobs" };
  return { view: "job", job: decoded(job), tab: TABS.has(tab) ? tab : "graph" };
}

/** The address of a view of a job. */
export function addressOf(job, tab = "graph") {
  return `#/jobs/${encodeURIComponent(job)}${tab === "graph" ? "" : `/${tab}`}`;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
