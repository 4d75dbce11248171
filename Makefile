# make demo    what treepress gains you, on a real model and real quantities
# make test    the tests, on the compiled kernels and on the Python fallback
# make bench   this machine's benchmark tables, plots and JSON in benchmarks/results
# make compat  other projects' test suites, without treepress.auto and with it; those of
#              Equinox, lineax and optimistix too if EQUINOX, LINEAX, OPTIMISTIX are the
#              folders of checkouts of them
# make wheel   what is published, in dist: source package, pure and compiled wheel, checked
# make wheels  the same with a compiled wheel for each Python found on this machine
# make lint    mypy --strict and ruff
# make docs    the documentation, in site, from docs and the docstrings
# make help    this list
# make clean   removes what these made
#
# Each makes a virtual environment in VENV with PYTHON and builds treepress into it; compat
# makes one for each suite, in tests/compat/build.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
ifeq ($(OS),Windows_NT)
BIN = $(VENV)/Scripts
endif

SOURCES = pyproject.toml setup.py $(wildcard src/treepress/*.py src/treepress/*/*.py)

demo: $(VENV)/.demo
	$(BIN)/python benchmarks/demo.py

test: $(VENV)/.test
	TREEPRESS_BACKEND=compiled $(BIN)/python -m pytest -n auto $(ARGS)
	TREEPRESS_BACKEND=python $(BIN)/python -m pytest -n auto $(ARGS)

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py $(ARGS)

compat:
	$(PYTHON) tests/compat/compat.py $(if $(EQUINOX),--equinox $(EQUINOX)) \
		$(if $(LINEAX),--lineax $(LINEAX)) $(if $(OPTIMISTIX),--optimistix $(OPTIMISTIX)) $(ARGS)

wheel:
	$(PYTHON) .ci/wheels.py

wheels:
	$(PYTHON) .ci/wheels.py $$(.ci/pythons)

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

help:
	@sed -n '/^#$$/q; s/^# //p' Makefile

clean:
	rm -rf .venv build dist site benchmarks/build tests/compat/build src/treepress.egg-info

.PHONY: demo test bench compat wheel wheels lint docs docs-serve help clean
.SECONDARY:
