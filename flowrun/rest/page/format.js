/** Numbers, sizes and times as people read them. Pure functions; what is not known is "–". */

export const UNKNOWN = "–";
const HIDDEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const STEPS = ["", "k", "M", "G", "T", "P"];
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 1234567 → "1.23 M". Whole below 10,000. */
export function count(value) {
  if (!isNumber(value)) return UNKNOWN;
  if (Math.abs(value) < 10_000) return Math.round(value).toLocaleString("en");
  return scaled(value, 1000, STEPS);
}

/** A whole number with its thousands marked. */
export function exact(value) {
  return isNumber(value) ? Math.round(value).toLocaleString("en") : UNKNOWN;
}

/** Rows a second: "12.3 k/s"; below ten with one digit. */
export function rate(value) {
  if (!isNumber(value)) return UNKNOWN;
  const number = value !== 0 && value < 10 ? value.toFixed(1) : count(value);
  return /[a-z]$/i.test(number) ? `${number}/s` : `${number} /s`;
}

/** Bytes: "12.3 MiB". */
export function bytes(value) {
  if (!isNumber(value)) return UNKNOWN;
  return value < 1024 ? `${Math.round(value)} B` : scaled(value, 1024, BYTES);
}

/** A share of one as "43 %". */
export function percent(value) {
  if (!isNumber(value)) return UNKNOWN;
  return `${Math.round(value * 100)} %`;
}

/** Milliseconds: "12 ms", "3.4 s", "2 min 5 s", "3 h 4 min", "2 d 5 h". */
export function duration(ms) {
  if (!isNumber(ms)) return UNKNOWN;
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < 1000) return `${ms < 10 && ms % 1 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  const [days, hours, minutes, seconds] = [
    Math.floor(s / 86400),
    Math.floor(s / 3600) % 24,
    Math.floor(s / 60) % 60,
    Math.floor(s) % 60,
  ];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return seconds ? `${minutes} min ${seconds} s` : `${minutes} min`;
}

/** Milliseconds since 1970 as local time: "14:03:22"; with the date if that is not the day of `now`. */
export function clock(ms, now = Date.now()) {
  if (!isNumber(ms)) return UNKNOWN;
  const at = new Date(ms);
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  return at.toDateString() === new Date(now).toDateString() ? time : `${day(at)} ${time}`;
}

/** Event time in ms since 1970 as "2026-01-31 14:03:22.100" in UTC, which is what watermarks are read in. */
export function eventTime(ms) {
  if (!isNumber(ms)) return UNKNOWN;
  if (Math.abs(ms) > 8.64e15) return ms > 0 ? "end of input" : UNKNOWN;
  const text = new Date(ms).toISOString().replace("T", " ").slice(0, -1);
  return ms % 1000 ? text : text.slice(0, -4);
}

/** "1 subtask", "2 subtasks". */
export function counted(number, one, many = `${one}s`) {
  return `${exact(number)} ${number === 1 ? one : many}`;
}

/** An enum's word as a word of a sentence: "IN_PROGRESS" → "In progress". */
export function word(text) {
  const words = String(text ?? "")
    .toLowerCase()
    .replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/**
 * A name or text of a pipeline as it may be shown: what turns the direction of writing, or is not to be seen, stands there as
 * an escape; of long ones the beginning.
 */
export function plain(text, most = Infinity) {
  const whole = String(text ?? "");
  const cut = whole.length > most ? `${whole.slice(0, most)}…` : whole;
  return cut.replace(HIDDEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function scaled(value, base, units) {
  let unit = 0;
  let rest = Math.abs(value);
  while (rest >= base && unit + 1 < units.length) {
    rest /= base;
    unit += 1;
  }
  const digits = rest < 10 ? 2 : rest < 100 ? 1 : 0;
  const number = Number(rest.toFixed(digits));
  return `${value < 0 ? "−" : ""}${number} ${units[unit]}`.trim();
}

function two(number) {
  return String(number).padStart(2, "0");
}

function day(at) {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}
