"""Windows over keyed streams, a room for each way to keep them. A room knows what is below it, never another room.

* `slices`: aligned windows (tumbling, sliding, cumulative) share slices of time, which hold partial results.
* `sessions`: intervals of a key's rows that grow, merge, and close after a gap without rows.
* `counts`: windows that time does not bound, over a number of a key's rows or all of them.
* `general`: any window with a trigger, an evictor or a function of its own keeps its rows.

Below them: `partials` (partial results as state), and the modules beside the rooms (recipes, results, how far windows have fired).
"""
