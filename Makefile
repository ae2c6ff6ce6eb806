# Needs Python 3.11 or newer, make and pip; everything else is put into .venv.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help dev test long pooled check fix soak mutants golden bench openapi lock

ARGS ?=
# The PostgreSQL the tests run on: 18 comes with the development dependencies, 15 is the system's own.
PG ?= 18
export PG
# Hundreds of processes are started; each would compile the whole of the code anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/dev.txt

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z][a-z-]*:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  ARGS="..." passes options to dev, test, pooled, soak and bench; PG=15|18 chooses the PostgreSQL of tests.'

dev: $(VENV)/.ok ## start the whole service on a PostgreSQL of its own
	@exec $(BIN)/outlast dev $(ARGS)

# Many tests wait, for a lease or a process: three for each core keep the cores busy.
PYTEST = $(BIN)/python -m pytest -n $(shell expr 3 '*' $$(getconf _NPROCESSORS_ONLN)) --dist worksteal

test: $(VENV)/.ok ## run every test but the long ones
	@exec $(PYTEST) $(ARGS)

long: $(VENV)/.ok ## run the faults that last: dead servers, cut lines, every reply lost
	@exec $(PYTEST) -m "long and not pooled and not soak" $(ARGS)

pooled: $(VENV)/.ok ## run what a driver must do once more behind a pooler (apt install pgbouncer)
	@exec $(PYTEST) -m pooled $(ARGS)

check: $(VENV)/.ok ## lint, formatting, types and import arrows
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(VENV)/.ok ## mend what can be mended by machine
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

soak: $(VENV)/.ok ## run the long tests: many seeds, minutes of load
	@exec $(PYTEST) -m soak $(ARGS)

mutants: $(VENV)/.ok ## change the driver's statements on purpose and name the changes no test notices
	@exec $(BIN)/python -m tests.mutants $(ARGS)

golden: $(VENV)/.ok ## write the traces of a new version that every later one has to replay
	@exec $(BIN)/python -m tests.golden $(ARGS)

bench: $(VENV)/.ok ## measure the figures beside the bare statements (ARGS="drain enqueue", --write for the page)
	@exec $(BIN)/python -m benchmarks $(ARGS)

openapi: $(VENV)/.ok ## write openapi/openapi.json
	@mkdir -p openapi
	$(BIN)/outlast openapi > openapi/openapi.json.new
	@mv openapi/openapi.json.new openapi/openapi.json

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' pyproject.toml

lock: ## resolve the dependencies anew into requirements/ (ARGS=--upgrade for newer releases)
	@test -x $(BIN)/python || $(MAKE) $(VENV)/.ok
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	$(COMPILE) $(ARGS) --output-file requirements/run.txt
	$(COMPILE) $(ARGS) --constraint requirements/run.txt --group dev --output-file requirements/dev.txt

# The stamp is written last: an interrupted set-up is started over.
$(VENV)/.ok: pyproject.toml requirements/run.txt requirements/dev.txt Makefile
	@set -eu; \
	if [ ! -x $(BIN)/python ] || ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		python=; old=; bare=; \
		for each in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
			command -v "$$each" >/dev/null 2>&1 && "$$each" -c '' >/dev/null 2>&1 || continue; \
			if ! "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then old="$$each"; \
			elif ! "$$each" -c 'import ensurepip, venv' 2>/dev/null; then bare="$$each"; \
			else python="$$each"; break; fi; \
		done; \
		if [ -z "$$python" ]; then \
			if [ -n "$$bare" ]; then \
				echo "missing: $$bare cannot create virtual environments (its venv or ensurepip module is absent)." >&2; \
				echo "fix: apt install $$("$$bare" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')  (or python3-venv)" >&2; \
			elif [ -n "$$old" ]; then \
				echo "missing: Python 3.11 or newer; found $$("$$old" --version 2>&1)." >&2; \
				echo "fix: install a newer Python, or name one: make PYTHON=/path/to/python3" >&2; \
			else \
				echo "missing: no python3 in PATH." >&2; \
				echo "fix: apt install python3 python3-venv, or name one: make PYTHON=/path/to/python3" >&2; \
			fi; \
			exit 1; \
		fi; \
		echo "setting up $(VENV) with $$("$$python" --version) ..." >&2; \
		rm -rf $(VENV); \
		"$$python" -m venv $(VENV); \
	fi; \
	echo "installing $(LOCK) ..." >&2; \
	if ! { $(BIN)/python -m pip install --quiet --disable-pip-version-check uv \
		&& UV_LINK_MODE=copy VIRTUAL_ENV=$(VENV) $(BIN)/uv pip sync --quiet --require-hashes $(LOCK); }; then \
		echo "uv did not do it; going on with pip ..." >&2; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK); \
	fi; \
	printf '%s\n' '#!/bin/sh' '# The checkout is run in place, not installed.' \
		'cd "$$(dirname "$$0")/../.." && exec .venv/bin/python -m app "$$@"' > $(BIN)/outlast; \
	chmod +x $(BIN)/outlast; \
	touch $@
