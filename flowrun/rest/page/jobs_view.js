/** The list of pipelines with their health. */

import { h } from "./dom.js";
import { clock, counted, duration, exact, plain, rate } from "./format.js";
import { chip, message, skeleton } from "./shell.js";

export function jobsView(state) {
  const { jobs } = state;
  if (jobs === null) return skeleton();
  if (!jobs.length) {
    return message("No jobs", "Nothing runs here. Start a pipeline with ", h("code", null, "flowrun run FILE"), ".");
  }
  const unwell = jobs.filter((j) => j.health.kind === "bad" || j.health.kind === "warning").length;
  return h(
    "section.stack",
    { key: "jobs" },
    h(
      "h1",
      null,
      "Jobs",
      h(
        "small",
        null,
        counted(jobs.length, "pipeline"),
        unwell ? `, ${exact(unwell)} need${unwell === 1 ? "s" : ""} a look` : "",
      ),
    ),
    h(
      "table.list.jobs",
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ["Pipeline", "Health", "Rows", "Running for", "Checkpoints", "Restarts"].map((t) =>
            h("th", { scope: "col" }, t),
          ),
        ),
      ),
      h("tbody", null, jobs.map(row)),
    ),
  );
}

function row(job) {
  const { checkpoints } = job;
  return h(
    "tr",
    { key: job.id },
    h(
      "th",
      { scope: "row" },
      h("a", { href: `#/jobs/${encodeURIComponent(job.id)}` }, h("bdi", null, plain(job.name, 200))),
      h("small", null, h("bdi", null, plain(job.file, 200))),
    ),
    h(
      "td",
      { "data-label": "Health" },
      chip(job.health),
      job.health.why && h("small", null, plain(job.health.why, 160)),
    ),
    h("td.figure-cell", { "data-label": "Rows" }, rate(job.rate), h("small", null, `${exact(job.rows)} in all`)),
    h("td.figure-cell", { "data-label": "Running for" }, duration(job.runningMs)),
    h(
      "td.figure-cell",
      { "data-label": "Checkpoints" },
      checkpoints
        ? [
            exact(checkpoints.completed),
            h(
              "small",
              null,
              checkpoints.failed
                ? `${exact(checkpoints.failed)} failed`
                : checkpoints.lastMs
                  ? `last ${clock(checkpoints.lastMs)}`
                  : "none yet",
            ),
          ]
        : h("small", null, "none are taken"),
    ),
    h("td.figure-cell", { "data-label": "Restarts" }, exact(job.restarts)),
  );
}
