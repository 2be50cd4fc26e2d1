"""The connector `http`: rows as requests to an HTTP server, one or many a request, and lookups by key."""
