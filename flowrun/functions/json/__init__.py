"""JSON functions: paths, documents, their kernels, and their text on Spark."""
