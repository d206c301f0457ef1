# Two commands do everything on a fresh machine with Python >= 3.10 and make:
#   make rehearse   install the package and see it work (ARGS="--cloud azure --ranks 4" goes to the command)
#   make test       install what the tests need, then lint, types, tests
# PYTHON names the interpreter, PYTEST_ARGS goes to pytest, e.g. make test PYTEST_ARGS="-k classify -x".

PYTHON ?= python3
VENV := .venv
VENVS := .venvs
BIN := $(VENV)/bin
PIP := -m pip --disable-pip-version-check install --quiet
ARGS ?=
PYTEST_ARGS ?=
# Half of the time a test waits for a server: two at a time, a file in one process each.
PYTEST_WORKERS ?= 2
STACKS := $(basename $(notdir $(wildcard requirements/stacks/*.txt)))
AZURITE := tests/azurite
BENCHMARKS := $(wildcard benchmarks/[a-z]*.py)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help rehearse test lint unit azurite test-stacks soak bench clean $(addprefix test-stack-,$(STACKS))

help:
	@sed -n '1,4s/^# \{0,1\}//p' Makefile
	@echo "Also: lint unit azurite test-stacks soak bench clean"

# -- environments: a stamp file stands for "installed", and is older than what it was installed from when that changes

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "resilient-io needs Python 3.10 or newer; name one with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python $(PIP) -e ".[all]"
	@touch $@

# One resolution for both: on a fresh machine `make test` alone installs once.
$(VENV)/.installed-test: pyproject.toml requirements/test.txt | $(BIN)/python
	$(BIN)/python $(PIP) -e ".[all]" -r requirements/test.txt
	@touch $(VENV)/.installed $@

# The Azure Blob store of the tests, by Node.js. Without npm its tests skip, or fail under RIO_REQUIRE_ALL=1.
$(AZURITE)/node_modules/.installed: $(AZURITE)/package.json $(AZURITE)/package-lock.json $(AZURITE)/.npmrc
	cd $(AZURITE) && npm ci --loglevel=error
	@touch $@

$(VENVS)/oldest/.installed: pyproject.toml requirements/oldest.txt requirements/oldest-test.txt
	$(PYTHON) -m venv $(VENVS)/oldest
	$(VENVS)/oldest/bin/python $(PIP) -e ".[all]" -r requirements/oldest-test.txt -c requirements/oldest.txt
	@touch $@

$(VENVS)/%/.installed: requirements/stacks/%.txt pyproject.toml
	$(PYTHON) -m venv $(VENVS)/$*
	$(VENVS)/$*/bin/python $(PIP) -r $<
	$(VENVS)/$*/bin/python $(PIP) -e ".[all]" -r $<
	@touch $@

# -- what people run

# With --cloud azure the command installs Azurite by itself, unless the tests have done so.
rehearse: $(VENV)/.installed
	@$(if $(wildcard $(AZURITE)/node_modules/azurite),AZURITE_HOME="$${AZURITE_HOME:-$(CURDIR)/$(AZURITE)}") \
		$(BIN)/resilient-io rehearse $(ARGS)

test: lint unit

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

azurite: $(if $(shell command -v npm),$(AZURITE)/node_modules/.installed)
	@command -v npm >/dev/null || echo "npm is not on the PATH: the tests against Azurite are left out" >&2

unit: $(VENV)/.installed-test azurite
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile $(PYTEST_ARGS)

test-stacks: $(addprefix test-stack-,$(STACKS))

# One pattern rule for all: `.PHONY` targets take no implicit rules, hence the static pattern.
$(addprefix test-stack-,$(STACKS)): test-stack-%: $(VENVS)/%/.installed
	$(VENVS)/$*/bin/python -m pytest -m stacks tests/stacks/test_$*.py $(PYTEST_ARGS)

soak: $(VENV)/.installed-test $(VENVS)/oldest/.installed azurite
	$(VENVS)/oldest/bin/python -m pytest $(PYTEST_ARGS)
	$(BIN)/python -m pytest -m soak -o faulthandler_timeout=1800 $(PYTEST_ARGS)

bench: $(VENV)/.installed-test
	@test -n "$(BENCHMARKS)" || { echo "benchmarks/ holds no benchmark" >&2; exit 1; }
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; $(BIN)/python $$script; done

clean:
	rm -rf $(VENV) $(VENVS) $(AZURITE)/node_modules build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
