/** Dialogs: orders to a job, the keys, and the token. They are `dialog` elements, which keep the focus inside. */

import { h } from "./dom.js";
import { plain } from "./format.js";
import { icon } from "./icons.js";
import { shownTabs } from "./job_view.js";

const show = (element) => {
  element.showModal();
  element.querySelector("[data-first]")?.focus();
};

/** The dialog that is open, or null. */
export function dialogView(state, act) {
  const open = state.dialog && { keys, savepoint, stop, rescale, token }[state.dialog];
  return open ? open(state, act) : null;
}

function dialog(name, title, act, ...content) {
  return h(
    "dialog",
    {
      key: name,
      id: "dialog",
      created: show,
      "aria-labelledby": "dialog-title",
      on: {
        close: () => act.openDialog(null),
        click: (event) => event.target.id === "dialog" && act.openDialog(null),
      },
    },
    h(
      "div.dialog-body",
      null,
      h(
        "header",
        null,
        h("h2", { id: "dialog-title" }, title),
        h(
          "button.square",
          {
            type: "button",
            title: "Close (Esc)",
            "aria-label": "Close (Esc)",
            on: { click: () => act.openDialog(null) },
          },
          icon("cross"),
        ),
      ),
      content,
    ),
  );
}

/** A form whose fields are given to `does` by name. */
function form(word, kind, act, does, ...fields) {
  const submit = (event) => {
    event.preventDefault();
    does(Object.fromEntries(new FormData(event.target)));
  };
  return h(
    "form",
    { on: { submit } },
    fields,
    h(
      "footer",
      null,
      h("button", { type: "button", on: { click: () => act.openDialog(null) } }, "Back"),
      h(`button.${kind}`, { type: "submit" }, word),
    ),
  );
}

function field(name, label, attributes, note) {
  const id = `field-${name}`;
  return h(
    "p.field",
    { key: name },
    h("label", { for: id }, label),
    h("input", { id, name, autocomplete: "off", spellcheck: "false", ...attributes }),
    note && h("small", { id: `${id}-note` }, note),
  );
}

function choice(name, value, label, note, isChosen, does) {
  return h(
    "label.choice",
    { key: value },
    h("input", { type: "radio", name, value, checked: isChosen, on: { change: does } }),
    h("span", null, h("b", null, label), h("small", null, note)),
  );
}

function savepoint(state, act) {
  const place = ({ directory }) => act.order({ kind: "savepoint", directory: directory.trim() || null });
  const usual = state.job.settings["checkpoint.savepoint_directory"] ?? "";
  return dialog(
    "savepoint",
    "Take a savepoint",
    act,
    h("p", null, "The job goes on. From the savepoint it can be started again, also after a change of the pipeline."),
    form(
      "Take the savepoint",
      "primary",
      act,
      place,
      field(
        "directory",
        "Directory",
        { value: usual, "data-first": true },
        `${PLACES} Empty: where the job keeps its checkpoints.`,
      ),
    ),
  );
}

const PLACES = "A folder, or an address such as s3://bucket/savepoints.";
const ENDS = [
  ["savepoint", "With a savepoint", "All rows read so far are processed, and a later run goes on from there."],
  ["checkpoint", "With a last checkpoint", "As above; the checkpoint stays in the job's own folder."],
  ["drain", "At the end of time", "Event time ends, so that open windows fire; a later run cannot go on from there."],
  ["cancel", "At once", "Nothing is saved. A later run goes on from the last checkpoint."],
];

function stop(state, act) {
  const takes = state.job.checkpoints !== null;
  const how = state.stopHow ?? "savepoint";
  const choose = (event) => act.change((s) => (s.stopHow = event.target.value));
  const usual = state.job.settings["checkpoint.savepoint_directory"] ?? "";
  const shown = ENDS.filter(([name]) => takes || name !== "checkpoint");
  const place = ({ directory }) => {
    const where = directory?.trim() || null;
    if (how === "cancel") act.order({ kind: "cancel" });
    else act.order({ kind: "stop", directory: how === "savepoint" ? where : null, drain: how === "drain" });
  };
  return dialog(
    "stop",
    "Stop the job",
    act,
    form(
      how === "cancel" ? "Cancel the job" : "Stop the job",
      "danger",
      act,
      place,
      h(
        "fieldset",
        { key: "how" },
        h("legend", null, plain(state.job.name, 120)),
        shown.map(([name, label, note]) => choice("how", name, label, note, how === name, choose)),
      ),
      how === "savepoint" &&
        field("directory", "Directory of the savepoint", { required: true, "data-first": true, value: usual }, PLACES),
    ),
  );
}

function rescale(state, act) {
  const place = ({ parallelism }) => act.order({ kind: "rescale", parallelism: Number(parallelism) });
  return dialog(
    "rescale",
    "Rescale the job",
    act,
    h(
      "p",
      null,
      "The job takes a checkpoint, stops for a moment, and goes on with this many subtasks for each step that does not say otherwise.",
    ),
    form(
      "Rescale",
      "primary",
      act,
      place,
      field("parallelism", "Parallelism", {
        type: "number",
        min: 1,
        max: 32768,
        step: 1,
        required: true,
        value: String(state.job.parallelism),
        "data-first": true,
      }),
    ),
  );
}

function token(state, act) {
  return dialog(
    "token",
    "A token is needed",
    act,
    h("p", null, state.connection.message || "This server tells of its jobs to those only who have its token."),
    form(
      "Unlock",
      "primary",
      act,
      ({ token: given }) => act.unlock(given),
      field(
        "token",
        "Token",
        { type: "password", required: true, "data-first": true },
        "The address that flowrun prints has it, behind #token=",
      ),
    ),
  );
}

const KEYS = [
  ["?", "These keys"],
  ["j", "All jobs"],
  ["t", "Colours: as the system, light, dark"],
  ["x", "The text beside the graph, or not"],
  ["← ↑ ↓ →", "Along the edges of the graph, in it"],
  ["Enter", "Open a vertex, or close it"],
  ["Esc", "Close what is open"],
  ["+ − 0", "Zoom in, out, fit the graph"],
  ["s", "Take a savepoint"],
];

function keys(state, act) {
  const rows = [...KEYS.slice(0, 3), ...shownTabs(state).map(([, word, key]) => [key, word]), ...KEYS.slice(3)];
  return dialog(
    "keys",
    "Keys",
    act,
    h(
      "dl.keys",
      null,
      rows.map(([key, text]) =>
        h(
          "div",
          { key },
          h(
            "dt",
            null,
            key.split(" ").map((k) => h("kbd", null, k)),
          ),
          h("dd", null, text),
        ),
      ),
    ),
  );
}

/** News of orders, newest last. */
export function toasts(state, act) {
  return h(
    "div.toasts",
    { key: "toasts", role: "status", "aria-live": "polite" },
    state.toasts.map((toast) =>
      h(
        `div.toast.${toast.kind}`,
        { key: toast.id },
        icon({ busy: "wait", done: "check", bad: "warning" }[toast.kind]),
        h(
          "p",
          null,
          h("b", null, toast.title),
          toast.text && h("bdi", null, plain(toast.text, 2000)),
          toast.hint && h("small", null, plain(toast.hint, 1000)),
        ),
        toast.kind !== "busy" &&
          h(
            "button.square",
            { type: "button", title: "Dismiss", "aria-label": "Dismiss", on: { click: () => act.dismiss(toast.id) } },
            icon("cross"),
          ),
      ),
    ),
  );
}
