/** Small charts of a figure over time. */

import { h } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 28;

const FEWEST = 30;

/** A line of the values, the newest at the right; null is a gap. They fill the width as soon as there are a few of them. */
export function sparkline(values, { label = "" } = {}) {
  const span = Math.max(FEWEST, values.length);
  const known = values.filter((v) => v !== null);
  const highest = Math.max(...known, 0) || 1;
  const x = (i) => WIDTH - ((values.length - 1 - i) * WIDTH) / (span - 1);
  const y = (v) => HEIGHT - 2 - (v / highest) * (HEIGHT - 4);
  let line = "";
  let area = "";
  let begun = null;
  const close = (i) => {
    if (begun !== null) area += ` L ${x(i).toFixed(1)} ${HEIGHT} L ${x(begun).toFixed(1)} ${HEIGHT} Z`;
    begun = null;
  };
  values.forEach((v, i) => {
    if (v === null) return close(i - 1);
    const point = `${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    line += `${begun === null ? " M" : " L"} ${point}`;
    area += `${begun === null ? " M" : " L"} ${point}`;
    begun ??= i;
    return null;
  });
  close(values.length - 1);
  return h(
    "svg.spark",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("path.spark-area", { d: area.trim() }),
    h("path.spark-line", { d: line.trim() }),
  );
}
