# Two commands do everything a newcomer needs: `make demo` and `make test`. Both set up what is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup demo test test-quick test-times test-cluster soak-cluster check audit simulate soak hunt bench site
.PHONY: wheel wheel-check clean

setup: $(STAMP)

# Java first: without it nothing works, so say so before anything is downloaded.
SOURCES := $(wildcard java/src/org/falkirk/*.java)
$(STAMP): pyproject.toml falkirk/spark_setup/ivy.xml falkirk/spark_setup/jars.sha256 falkirk/user_tools/commands/training.py tools/check-machine $(SOURCES)
	@PYTHON="$(PYTHON)" tools/check-machine
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/falkirk setup
	@touch $(STAMP)

# This machine may forbid Python to keep compiled files; then each process of the demo compiles all modules, for a second.
demo: setup
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m demo

# All that guards a landing, at most 20 minutes on two idle cores. The longest tests come first, so that all workers end
# together. There are five for two cores, since tests wait for more than half of their time. One of them has all of chaos/.
# This machine may forbid Python to keep compiled files; dozens of processes would then compile everything anew.
RUN := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --numprocesses 5 --dist load
FOLDERS := tests/chaos tests/contract tests/integration tests/simulation tests/theory tests/unit

test: setup
	@$(RUN) $(FOLDERS)

# What to run after each change, at most 4 minutes: no faults, and one of each kind of test with Spark.
test-quick: setup
	@$(RUN) $(FOLDERS) -m quick

# The tests of `make test`; then where the time went, as docs/test-times.md has it. Unlike in `make test`, each worker has
# its own JVM, so that the CPU time of a JVM belongs to the test that runs.
test-times: setup
	@rm -f .falkirk/test-times; mkdir -p .falkirk
	@FALKIRK_TEST_TIMES=.falkirk/test-times $(RUN) $(FOLDERS)
	@$(BIN)/python -m tests.running.times .falkirk/test-times

# Clusters of brokers and of Spark on this machine, at most 10 minutes on two idle cores: a fault of each kind. Needs root
# for network namespaces, and skips what it can't run.
CLUSTER := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --numprocesses 3 --dist load tests/cluster

test-cluster: setup
	@$(CLUSTER) -m 'not soak'

# What else there is of them: kinds of faults that other tests have, too.
soak-cluster: setup
	@$(CLUSTER) -m soak

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file tools/mypy-tests.ini falkirk tests
	@$(BIN)/python -m pytest tests/unit/house/test_tidy.py -q

# Known advisories about what we depend on. Needs the network, so `make check` does not run it; CI does, without effect on
# its result.
audit: setup
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[audit]'
	@$(BIN)/python tools/audit.py

# One schedule of the simulation again, with what happened in it.
simulate: setup
	@$(BIN)/python -m tests.simulation.replay $(SEED)

# Schedules that no test has run yet, for so many minutes.
soak: setup
	@$(BIN)/python -m tests.simulation.soak $(or $(MINUTES),10)

# Drawn pipelines that are said to come out the same, run twice, for so many minutes; or all pipelines of one seed.
hunt: setup
	@$(BIN)/python -m tests.integration.hunting.soak $(if $(SEED),seed $(SEED),$(or $(MINUTES),10))

bench: setup
	@$(BIN)/python -m benchmarks latency

# The documentation as a site in build/site. A warning ends the build. It needs the network only to install mkdocs.
$(VENV)/.docs: pyproject.toml $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

# A digest of its sources lies beside the site, so that `make test` does not build the same site again.
site: setup $(VENV)/.docs
	@rm -f build/site.sha256; mkdir -p build; $(BIN)/python -m tools.site_sources > build/site.sources
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@mv build/site.sources build/site.sha256
	@echo "build/site/index.html"

# A wheel with the prebuilt Java module. It needs hatchling from the registry.
wheel: setup
	@FALKIRK_BUILD_PYTHON=$(CURDIR)/$(BIN)/python $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

# The built wheel in an empty environment: a new project, its test, and a run with a local broker. It needs the network.
wheel-check: setup
	@$(BIN)/python tools/check_wheel.py

clean:
	rm -rf $(VENV) .falkirk build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
