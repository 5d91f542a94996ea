# Everything that a person or CI does with Fermata. Needs make and Python 3.11 or newer, nothing else.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules
# Where it is set, each process would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed
SERVING := $(VENV)/.serving

# The first of these that is new enough and can make environments is used; PYTHON3=/some/python chooses another.
PYTHON3 ?= python3.13 python3.12 python3.11 python3
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: help
help: ## List these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) \
	  | while IFS='|' read -r name words; do printf '  make %-10s %s\n' "$$name" "$$words"; done

.PHONY: install
install: ## Make .venv with the locked packages; quick when nothing has changed
	@$(PYTHON) -c '' 2>/dev/null || rm -f $(STAMP) $(SERVING)
	@$(MAKE) --silent --no-print-directory $(STAMP)

# What serving needs is much less than what checking needs, so a first `make run` is there sooner.
.PHONY: install-serving
install-serving:
	@$(PYTHON) -c '' 2>/dev/null || rm -f $(STAMP) $(SERVING)
	@$(MAKE) --silent --no-print-directory $(SERVING)

$(STAMP): requirements-dev.txt
	$(fill)
	@touch $(STAMP) $(SERVING)

$(SERVING): requirements.txt
	$(fill)
	@touch $(SERVING)

define fill
	@if $(PYTHON) -c 'import pip; $(NEW_ENOUGH)' 2>/dev/null; then exit 0; fi; \
	found=''; chosen=''; \
	for candidate in $(PYTHON3); do \
	  "$$candidate" -c '$(NEW_ENOUGH)' 2>/dev/null || continue; \
	  found="$$candidate"; \
	  if "$$candidate" -c 'import ensurepip, venv' 2>/dev/null; then chosen="$$candidate"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo 'Fermata needs Python 3.11 or newer and finds none. Install it (Debian, Ubuntu: apt-get install python3 python3-venv; macOS: brew install python), then run make again.' >&2; \
	  exit 1; \
	fi; \
	if [ -z "$$chosen" ]; then \
	  echo "$$found is there, but its module for environments is not. Install it (Debian, Ubuntu: apt-get install python3-venv), then run make again." >&2; \
	  exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$chosen" --version)."; \
	rm -rf $(VENV) && "$$chosen" -m venv $(VENV)
	@echo 'Installing the packages that $< names.'
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $<
endef

.PHONY: run
run: install-serving ## Serve on 127.0.0.1:8000 with a Postgres of its own
	@exec $(PYTHON) -m app serve

.PHONY: test
test: install ## Run the tests, except the slow ones (args="-k pause" is passed on)
	$(PYTHON) -m pytest -n 4 --dist worksteal $(args)

.PHONY: test-all
test-all: install ## Run all tests
	$(PYTHON) -m pytest -n 4 --dist worksteal -m '' $(args)

.PHONY: bench
bench: install ## Measure the speed beside a bare relay; the table goes to tests/bench/results (args="burst paced" picks)
	$(PYTHON) -m tests.bench $(args)

.PHONY: check
check: lint types imports contract test ## Do all that CI does

.PHONY: format
format: install ## Format the code and mend what can be mended by itself
	$(PYTHON) -m ruff format
	$(PYTHON) -m ruff check --fix

.PHONY: lint
lint: install ## Look for mistakes and odd formatting
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check

.PHONY: types
types: install ## Check the types
	$(PYTHON) -m mypy

.PHONY: imports
imports: install ## Check which module may import which, and that each package imported is asked for
	$(VENV)/bin/lint-imports
	$(VENV)/bin/deptry .

.PHONY: openapi
openapi: install ## Write the API's description into openapi/
	$(PYTHON) -m app openapi

.PHONY: contract
contract: install ## Check that openapi/ describes the API as it is
	$(PYTHON) -m app openapi --check

.PHONY: migrate
migrate: install-serving ## Bring the database to the newest tables
	$(PYTHON) -m app migrate

.PHONY: migration
migration: install ## Write a migration from the difference between tables and code (m="what it does")
	@if [ -z "$(m)" ]; then echo 'Say what the migration does: make migration m="add the colour of a conversation"' >&2; exit 1; fi
	$(PYTHON) -m tests.new_migration "$(m)"

.PHONY: lock
lock: install ## Choose the newest packages that pyproject.toml allows and write both requirement files
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check uv
	build/lock/bin/uv pip compile $(LOCKING) pyproject.toml $(SERVED) --output-file requirements.txt
	build/lock/bin/uv pip compile $(LOCKING) pyproject.toml --extra dev --output-file requirements-dev.txt

LOCKING := --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
  --no-header --no-emit-index-url --no-emit-find-links
# The extras that are small: the image and `make run` have them.
SERVED := --extra documents --extra mcp --extra sentiment

.PHONY: up
up: ## Start the whole of it in Docker: Postgres, migration, two replicas, nginx on port 8080
	docker compose up --build --detach --wait

.PHONY: down
down: ## Stop what `make up` started; the data stays
	docker compose down

.PHONY: clean
clean: ## Remove the environment and all caches; the data in .fermata stays
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.fermata/*' -prune -exec rm -rf {} +
