# Every target builds what it needs in .venv; nothing is installed by hand.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# One BLAS thread a process: the tests already run one process a core. Bytecode is kept even where
# the shell forbids it: the suite starts dozens of interpreters, and each would compile everything.
PINNED := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
WORKERS ?= 2

.PHONY: demo test test-fast test-lowest test-pythons test-nvflare check format bench fuzz reproduce docs clean

demo: $(VENV)/.installed
	$(BIN)/eigenmesh demo

test: $(VENV)/.installed-dev
	$(PINNED) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=15

test-fast: $(VENV)/.installed-dev
	$(PINNED) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -k "not mpi and not dask and not nvflare_federation"

# The oldest versions that pyproject.toml allows, on the oldest Python; without engines.
LOWEST := .venv-lowest
test-lowest: $(LOWEST)/.installed
	$(PINNED) $(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal --doctest-ignore-import-errors $(TESTS)

# Every supported Python that this machine has, and that runs: pyenv's names are there whether it does.
PYTHONS ?= python3.11 python3.12 python3.13
test-pythons:
	for python in $(PYTHONS); do \
	  if $$python -c '' 2> /dev/null; \
	  then $(MAKE) test PYTHON=$$python VENV=.venv-$$python || exit 1; \
	  else echo "no $$python here: not tested with it"; fi; \
	done

# Three sites, a server and an analyst on the loopback, with mutual TLS, and beside them the example:
# about three minutes.
test-nvflare: $(VENV)/.installed-dev
	$(PINNED) $(BIN)/python -m pytest -m nvflare -n 2 --dist loadfile tests/engines --durations=15

# Damaged and random input for hosts, wire, messages, records, model files, studies and readers.
SECONDS_OF_FUZZ ?= 60
SEED ?= 0
fuzz: $(VENV)/.installed-dev
	$(PINNED) $(BIN)/python tests/fuzz.py --seconds $(SECONDS_OF_FUZZ) --seed $(SEED)

# Every table and figure of the papers at full size; what was measured before is not measured again.
reproduce: $(VENV)/.installed
	$(PINNED) $(BIN)/eigenmesh reproduce all

# The site in build/docs: no network, no warnings.
docs: $(VENV)/.installed-dev
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

check: $(VENV)/.installed-dev docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Ratios against peers and limits, each printed and kept as JSON; docs/results.md is written from these.
# Hours for all; `make bench STUDIES=benchmarks/bench_peers.py` takes one.
STUDIES ?= $(wildcard benchmarks/bench_*.py)
RESULTS ?= build/results
bench: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	for study in $(STUDIES); do EIGENMESH_RESULTS=$(RESULTS) $(PINNED) $(BIN)/python $$study || exit 1; done
	$(BIN)/python benchmarks/write_results.py $(RESULTS) docs/results.md

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "eigenmesh needs Python 3.11 or newer; '$(PYTHON)' is older or does not run. Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[files,plot]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(LOWEST)/.installed: pyproject.toml tests/lowest_versions.py
	python3.11 -m venv $(LOWEST)
	python3.11 tests/lowest_versions.py pyproject.toml > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check \
	  -c $(LOWEST)/lowest.txt -e '.[files,plot,excel,privacy]' pytest pytest-timeout pytest-xdist hypothesis 'pandas==2.2.*' 'pyparsing<3.2'
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) $(PYTHONS:%=.venv-%) .mypy_cache .ruff_cache .pytest_cache build dist
