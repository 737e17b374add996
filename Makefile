# `make demo` and `make test` need Python >= 3.11 only: they install everything else, the MPI
# included, into .venv. To choose another Python: make PYTHON=python3.12 demo
PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
# The modules that scheduler/compiled.py names.
COMPILED := scheduler/compiled.py $(addsuffix .py,$(subst .,/,$(shell \
  sed -n 's/^    "\([a-z_.]*\)",$$/\1/p' scheduler/compiled.py)))

# Tests start thousands of Python processes; without compiled files each would compile the sources.
unexport PYTHONDONTWRITEBYTECODE

# Tests that wait for processes run beside tests that compute, so there are more processes than cores.
WORKERS ?= 6
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help demo demo-cluster demo-slurm test test-all lint docs clean

help:
	@echo "make demo   run a workload of resizable MPI jobs; ARGS='--seed 1' adds options"
	@echo "make demo-cluster   the same on three hosts made of namespaces; needs root"
	@echo "make demo-slurm     the same inside a Slurm on four such hosts; needs root, installs Slurm by apt"
	@echo "make test   run the tests that a change needs;   ARGS='-k topology' adds options"
	@echo "make test-all   also the tests with hosts, Slurm, campaigns and studies, and long searches"
	@echo "make lint   check style, types and spelling: ruff, mypy, codespell"
	@echo "make docs   write the documentation site to docs/_build/html; a warning is an error"
	@echo "make clean  remove .venv and all generated files"

demo: $(READY)
	$(BIN)/reshape demo --out demo-out $(ARGS)

demo-cluster: $(READY)
	$(BIN)/python examples/cluster/demo.py --report demo-out/cluster.html $(ARGS)

demo-slurm: $(READY)
	$(BIN)/python examples/cluster/slurm_demo.py --report demo-out/slurm.html $(ARGS)

test: $(READY)
	$(PYTEST) -m "not (hosts or slurm or campaign or studies or long)" $(ARGS)

test-all: $(READY)
	$(PYTEST) --hypothesis-profile=thorough $(ARGS)

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/codespell

docs: $(READY)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --jobs 2 docs docs/_build/html $(ARGS)
	@echo "the site is in docs/_build/html/index.html"

clean:
	rm -rf $(VENV) demo-out docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find redistribution scheduler simulator -name '*.so' -delete
	rm -f *__mypyc*.so
	rm -f scheduler/compiled.digest

# Installed again when pyproject.toml or a compiled source changes. The check for ensurepip is for
# Debian, which packages it apart from Python.
$(READY): pyproject.toml hatch_build.py redistribution/copies/kernel.c $(COMPILED)
	@command -v $(PYTHON) >/dev/null || \
	  { echo "There is no $(PYTHON) on PATH; install Python >= 3.11, or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python >= 3.11 is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1); name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	@touch $@
