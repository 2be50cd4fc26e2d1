"""CAST and TRY_CAST: which types convert, and the kernels that do it."""
