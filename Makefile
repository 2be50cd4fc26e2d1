# `make check` runs what CI runs.
PYTHON ?= python

.PHONY: check native lint types imports test exhaustive soak fuzz mutants bench docs site

check: lint types imports site test exhaustive

native:  # what is written in C, after a change of it; installing flowrun does this, too
	$(PYTHON) flowrun/connectors/formats/native/build.py

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

imports:
	lint-imports

test:
	$(PYTHON) -m pytest

exhaustive:  # what `test` leaves out: every case, on Spark too
	$(PYTHON) -m pytest --dist worksteal -m 'exhaustive and not soak'

soak:
	HYPOTHESIS_PROFILE=soak $(PYTHON) -m pytest -m 'soak or not soak'

fuzz:  # hours of damaged inputs; TARGET is one of script, query, batch, spark, pipeline, expression, type
	$(PYTHON) -m tests.fuzz.campaign $(or $(TARGET),query) --seconds $(or $(SECONDS),3600)
# Which small changes of critical code no test notices; takes hours. SAMPLE: how many changes are tried of each module.
SAMPLE ?= 40
mutants:
	$(PYTHON) -m tests.mutation --sample $(SAMPLE)

bench:
	$(PYTHON) -m benchmarks

docs:  # what is generated: reference pages, and pictures of the concepts
	$(PYTHON) docs/generate.py
	$(PYTHON) docs/concepts/draw.py

site:  # docs/ as a site in build/site; links that lead nowhere are errors.
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet -f docs/site/mkdocs.yml
