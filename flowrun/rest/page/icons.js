/** Icons as strokes on a grid of 16; those beside a word are hidden from screen readers. */

import { h } from "./dom.js";

const STROKES = {
  check: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  warning: "M8 2.2 14.6 13.5H1.4ZM8 6.5v3.2M8 11.6v.1",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3.2v9.6L12.5 8Z",
  wait: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2ZM8 4.8V8l2.2 1.6",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  save: "M8 2.5v7M5 7l3 3 3-3M3 12.5v1h10v-1",
  scale: "M6.5 9.5 2.5 13.5M2.5 10v3.5H6M9.5 6.5l4-4M10 2.5h3.5V6",
  stop: "M4 4h8v8H4Z",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6ZM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7",
  moon: "M13 9.6A5.6 5.6 0 0 1 6.4 3a5.3 5.3 0 1 0 6.6 6.6Z",
  system: "M2.5 3.5h11v7h-11ZM6 13.5h4",
  keys: "M1.8 4.5h12.4v7H1.8ZM4.3 7h.01M6.8 7h.01M9.2 7h.01M11.7 7h.01M5 9.3h6",
  plus: "M8 3.5v9M3.5 8h9",
  minus: "M3.5 8h9",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  code: "M5.5 4.5 2 8l3.5 3.5M10.5 4.5 14 8l-3.5 3.5",
  right: "M6 3.5 10.5 8 6 12.5",
  copy: "M6 6h7.5v7.5H6ZM3.8 10H2.5V2.5H10v1.3",
  idle: "M8 3a5 5 0 1 0 0 10A5 5 0 0 0 8 3Z",
  dot: "M8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6Z",
};

/** The icon of that name. */
export function icon(name) {
  return h("svg.icon", { viewBox: "0 0 16 16", "aria-hidden": "true" }, h("path", { d: STROKES[name] }));
}
