# Two commands do everything a newcomer needs: `make demo` and `make test`. Both set up what is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup demo test check simulate soak bench clean

setup: $(STAMP)

# Java first: without it nothing works, so say so before anything is downloaded.
$(STAMP): pyproject.toml falkirk/local/ivy.xml tools/check-machine
	@PYTHON="$(PYTHON)" tools/check-machine
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -c 'from falkirk.local.jars import resolved; resolved()'
	@touch $(STAMP)

demo: setup
	@$(BIN)/falkirk demo

test: setup
	@$(BIN)/python -m pytest tests/theory tests/unit -q --numprocesses 2
	@$(BIN)/python -m pytest tests/simulation -q --numprocesses 2
	@$(BIN)/python -m pytest tests/chaos tests/contract tests/integration -q --numprocesses 2 --dist worksteal

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/unit/test_tidy.py -q

# One schedule of the simulation again, with what happened in it.
simulate: setup
	@$(BIN)/python -m tests.simulation.replay $(SEED)

# Schedules that no test has run yet, for so many minutes.
soak: setup
	@$(BIN)/python -m tests.simulation.soak $(or $(MINUTES),10)

bench: setup
	@$(BIN)/falkirk bench latency

clean:
	rm -rf $(VENV) .falkirk build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
