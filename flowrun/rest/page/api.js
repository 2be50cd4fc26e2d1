/** Questions to the server that served the page, with the token that its address came with. */

const TOKEN = "flowrun.token";
const PATIENCE_MS = 15_000;

/** Why an answer did not come. `kind`: unauthorized, missing, refused (what was asked is wrong), failed, unreachable. */
export class Failure extends Error {
  constructor(kind, message, hint = "") {
    super(message);
    this.kind = kind;
    this.hint = hint;
  }
}

/** Takes the token out of `#token=…`, so that it stands neither in the address bar nor in the history. */
export function takeToken() {
  const given = /^#token=([^&]+)(?:&(.*))?$/.exec(location.hash);
  if (!given) return;
  keepToken(decodeURIComponent(given[1]));
  history.replaceState(null, "", `${location.pathname}#${given[2] || "/"}`);
}

/** Keeps a token for as long as the tab is open. */
export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token.trim());
}

/** The JSON of an answer. Raises Failure. */
export async function ask(path, { method = "GET", body } = {}) {
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    answer = await fetch(path, { method, headers, signal, cache: "no-store", body: body && JSON.stringify(body) });
  } catch (error) {
    const late = error.name === "TimeoutError";
    throw new Failure("unreachable", late ? "The server took too long to answer." : "The server does not answer.");
  }
  const said = await answer.json().catch(() => null);
  if (answer.ok) {
    if (said === null) throw new Failure("failed", "The answer of the server is no JSON.");
    return said;
  }
  throw new Failure(kindOf(answer.status), textOf(said, answer), said?.hint ?? said?.error?.hint ?? "");
}

/** A path with its parts encoded: path`/v1/jobs/${id}/graph`. */
export function path(texts, ...parts) {
  return texts.reduce((found, text, i) => found + encodeURIComponent(parts[i - 1]) + text);
}

function kindOf(status) {
  if (status === 401 || status === 403) return "unauthorized";
  if (status === 404) return "missing";
  return status < 500 ? "refused" : "failed";
}

function textOf(said, answer) {
  const text = said?.message ?? said?.error?.message ?? said?.error ?? said?.detail;
  return typeof text === "string" && text ? text : `The server answered ${answer.status} ${answer.statusText}.`;
}
