"""The REST API of running jobs: a table of routes, served by uvicorn in a thread of the process that has the jobs."""
