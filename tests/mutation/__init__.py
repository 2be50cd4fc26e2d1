"""Whether tests notice wrong code: `make mutants`."""
