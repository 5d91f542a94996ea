# Everything a person or CI does with Fermata. Needs make and Python 3.11 or newer, nothing else.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
PYTHON := $(VENV)/bin/python
LOCK := requirements-dev.txt
STAMP := $(VENV)/.installed

# The first of these that runs, is new enough and can make environments is used.
# Say PYTHON3=/path/to/python to choose another.
PYTHON3 ?= python3.13 python3.12 python3.11 python3

.PHONY: help
help: ## List these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) \
	  | while IFS='|' read -r name words; do printf '  make %-10s %s\n' "$$name" "$$words"; done

.PHONY: install
install: ## Make .venv with the locked packages (does nothing when they are there)
	@if [ -e $(STAMP) ] && ! $(PYTHON) -c '' 2>/dev/null; then rm -rf $(VENV); fi
	@$(MAKE) --no-print-directory $(STAMP)

$(STAMP): $(LOCK)
	@chosen=''; new=''; \
	for candidate in $(PYTHON3); do \
	  "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  new="$$candidate"; \
	  if "$$candidate" -c 'import ensurepip, venv' 2>/dev/null; then chosen="$$candidate"; break; fi; \
	done; \
	if [ -z "$$new" ]; then \
	  echo 'Fermata needs Python 3.11 or newer, and none was found: install it (on Debian and Ubuntu: apt-get install python3 python3-venv; on macOS: brew install python) and run make again.' >&2; \
	  exit 1; \
	fi; \
	if [ -z "$$chosen" ]; then \
	  echo "$$new is there, but its venv module is not: install it (on Debian and Ubuntu: apt-get install python3-venv) and run make again." >&2; \
	  exit 1; \
	fi; \
	if [ -x $(PYTHON) ] && $(PYTHON) -m pip --version >/dev/null 2>&1; then :; else \
	  echo "Making $(VENV) with $$("$$chosen" --version)."; \
	  rm -rf $(VENV) && "$$chosen" -m venv $(VENV) || exit 1; \
	fi
	@echo 'Installing the packages that $(LOCK) locks.'
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(LOCK)
	@touch $(STAMP)

.PHONY: run
run: install ## Serve on 127.0.0.1:8000 with a Postgres of its own
	@exec $(PYTHON) -m app serve

.PHONY: test
test: install ## Run the tests that CI runs
	$(PYTHON) -m pytest
