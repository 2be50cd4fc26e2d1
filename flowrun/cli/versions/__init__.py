"""Commands that know versions of a pipeline: `apply`, `history` and `diff`."""
