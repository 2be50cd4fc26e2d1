/** The configuration with which a job runs; secrets were masked before they came here. */

import { h } from "./dom.js";
import { plain } from "./format.js";
import { icon } from "./icons.js";

export function settingsView(state) {
  const { settings } = state;
  if (settings.state === "loading") return h("p.empty", { key: "settings" }, "Loading the configuration …");
  if (settings.state === "failed")
    return h("p.note.bad", { key: "settings" }, icon("warning"), h("span", null, plain(settings.message, 1000)));
  return h(
    "section.stack",
    { key: "settings", "aria-label": "Configuration" },
    settings.groups.map(([title, entries]) =>
      h(
        "div.panel",
        { key: title },
        title && h("h3", null, h("bdi", null, plain(title, 200))),
        h(
          "dl.settings",
          null,
          entries.map(([name, value]) =>
            h(
              "div",
              { key: name },
              h("dt", null, h("bdi", null, plain(name, 200))),
              h("dd", null, h("bdi", null, plain(value, 4000))),
            ),
          ),
        ),
      ),
    ),
    !settings.groups.length && h("p.empty", null, "Nothing was set: all settings have their defaults."),
  );
}
