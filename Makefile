# make demo           what treepress gains you, on a real model and real quantities
# make test           the tests, on the compiled kernels and on the Python fallback
# make coverage       the lines of the package, kernels too, that no test runs
# make bench          this machine's benchmark tables, plots and JSON in benchmarks/results
# make bench-compare  what is faster or slower than in the commit BASE
# make compat         other projects' suites; EQUINOX=, LINEAX=, OPTIMISTIX= name checkouts of more
# make wheel          what is published, in dist: source package, pure and compiled wheel, checked
# make wheels         the same with a compiled wheel for each Python found on this machine
# make wheel-check    wheel, built twice and compared, and installed where there is no compiler
# make wheels-check   the same for each Python found on this machine
# make lint           mypy --strict and ruff
# make docs           the documentation, in site, from docs and the docstrings
# make docs-serve     the same, shown at a local address, at each change
# make help           this list
# make clean          removes what these made; not another VENV, nor what was measured
#
# Each makes a virtual environment in VENV with PYTHON and builds treepress into it; coverage
# makes another, without compiled kernels, and compat one for each suite, in tests/compat/build.
# ARGS are handed on: to pytest, or to what measures. bench-compare builds the commit BASE (that
# at which this branch left main; on main itself, the one before) and the working tree.

PYTHON ?= python3
VENV ?= .venv
SCRIPTS = bin
ifeq ($(OS),Windows_NT)
SCRIPTS = Scripts
endif
BIN = $(VENV)/$(SCRIPTS)

SOURCES = pyproject.toml setup.py $(wildcard src/treepress/*.py src/treepress/*/*.py)

demo: $(VENV)/.demo
	$(BIN)/python benchmarks/demo.py

# What XLA compiles is the same on both backends.
test: export JAX_COMPILATION_CACHE_DIR = $(abspath $(VENV))/xla
test: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0
test: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES = -1
test: $(VENV)/.test
	TREEPRESS_BACKEND=compiled $(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)
	TREEPRESS_BACKEND=python $(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

# Kernels that are compiled leave no trace. So a build without them runs twice: as it is, and
# with the source of those that only a compiled build has.
COVERAGE = $(VENV)-coverage/$(SCRIPTS)/python -m coverage

coverage: $(VENV)-coverage/.made
	$(COVERAGE) erase
	TREEPRESS_BACKEND=python $(COVERAGE) run -m pytest -n auto --dist worksteal $(ARGS)
	TREEPRESS_BACKEND=interpreted $(COVERAGE) run -m pytest -n auto --dist worksteal $(ARGS)
	$(COVERAGE) combine --quiet
	$(COVERAGE) report

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py $(ARGS)

bench-compare: $(VENV)/.bench
	$(BIN)/python benchmarks/compare.py $(if $(BASE),--base $(BASE)) $(ARGS)

compat:
	$(PYTHON) tests/compat/compat.py $(if $(EQUINOX),--equinox $(EQUINOX)) \
		$(if $(LINEAX),--lineax $(LINEAX)) $(if $(OPTIMISTIX),--optimistix $(OPTIMISTIX)) $(ARGS)

wheel:
	$(PYTHON) .ci/wheels.py

wheels:
	$(PYTHON) .ci/wheels.py $$(.ci/pythons)

wheel-check:
	$(PYTHON) .ci/wheels.py --twice
	$(PYTHON) .ci/installs.py

wheels-check:
	$(PYTHON) .ci/wheels.py --twice $$(.ci/pythons)
	$(PYTHON) .ci/installs.py $$(.ci/pythons)

lint: $(VENV)/.lint
	$(BIN)/python -m mypy
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check

docs: $(VENV)/.docs
	$(BIN)/python -m mkdocs build --strict

docs-serve: $(VENV)/.docs
	$(BIN)/python -m mkdocs serve --strict

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

# Not editable: there a kernel's .py could be imported in the place of its extension module.
# Compiled or not at all: a run without the kernels would not be what it says it is.
# Setuptools would put what lies in build, from before, into the package.
$(VENV)/.%: $(VENV)/.made $(SOURCES)
	rm -rf build
	TREEPRESS_BUILD_COMPILED=1 $(BIN)/python -m pip install --quiet ".[$*]"
	touch $@

$(VENV)-coverage/.made: $(SOURCES)
	$(PYTHON) -m venv $(@D)
	rm -rf build
	TREEPRESS_BUILD_PURE=1 $(@D)/$(SCRIPTS)/python -m pip install --quiet ".[coverage]"
	touch $@

help:
	@sed -n '/^#$$/q; s/^# //p' Makefile

clean:
	rm -rf .venv .venv-coverage .coverage* build dist site benchmarks/build tests/compat/build src/treepress.egg-info

.PHONY: demo test coverage bench bench-compare compat wheel wheels wheel-check wheels-check \
	lint docs docs-serve help clean
.SECONDARY:
