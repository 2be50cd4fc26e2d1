/** Asks again and again: one question at a time, none while nobody looks, ever more rarely while no answer comes. */

const LONGEST_MS = 10_000;

/**
 * Starts asking at once.
 *
 * @param {() => Promise<boolean>} ask asks and says whether to go on; what it throws counts as no answer.
 * @param {number} everyMs from one question to the next.
 * @returns {{stop: () => void, now: () => void}}
 */
export function poll(ask, everyMs) {
  let timer = null;
  let misses = 0;
  let state = "waits"; // waits, asks, stopped

  const next = (ms) => {
    clearTimeout(timer);
    if (state === "waits" && !document.hidden) timer = setTimeout(run, ms);
  };
  const run = async () => {
    if (state !== "waits") return;
    state = "asks";
    const started = performance.now();
    let goesOn = true;
    try {
      goesOn = await ask();
      misses = 0;
    } catch {
      misses += 1;
    }
    if (state === "stopped") return;
    state = "waits";
    if (!goesOn) return stop();
    const wait = misses ? Math.min(LONGEST_MS, everyMs * 2 ** (misses - 1)) : everyMs - (performance.now() - started);
    next(Math.max(100, wait));
  };
  const seen = () => next(0);
  const stop = () => {
    state = "stopped";
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  };
  document.addEventListener("visibilitychange", seen);
  next(0);
  return { stop, now: () => next(0) };
}
