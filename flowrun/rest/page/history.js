/** What rates were lately, for small charts: the page remembers it itself. */

const KEPT = 120;

/** The last samples of a job and of each of its vertices. */
export class History {
  #samples = new Map();
  #latest = null;

  /** Take the rates of a job; a job that was taken already is left out. */
  add(job) {
    if (job.atNs === this.#latest) return;
    this.#latest = job.atNs;
    this.#push("", job);
    for (const vertex of job.vertices) this.#push(vertex.id, vertex);
  }

  /** The samples of a vertex, or those of the job for "": oldest first, {rateIn, rateOut} in rows a second. */
  of(id) {
    return this.#samples.get(id) ?? [];
  }

  #push(id, { rateIn, rateOut }) {
    const samples = this.#samples.get(id) ?? [];
    this.#samples.set(id, [...samples.slice(1 - KEPT), { rateIn, rateOut }]);
  }
}
