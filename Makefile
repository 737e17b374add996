# `make demo` and `make test` need Python >= 3.11 and nothing else of ours: everything, the MPI
# included, goes into .venv. Another Python: make PYTHON=python3.12 demo
PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
# What scheduler/compiled.py names, and a little more.
COMPILED := $(wildcard scheduler/compiled.py scheduler/core/*.py scheduler/model/*.py scheduler/state/*.py) \
  scheduler/policies/backfill/easy.py scheduler/policies/backfill/conservative.py \
  $(wildcard scheduler/virtual_clock/*.py) \
  simulator/engine/rigid_jobs.py simulator/engine/job_programs.py

.PHONY: help demo test lint clean

help:
	@echo "make demo   run a workload of resizable MPI jobs; ARGS='--seed 1' hands options on"
	@echo "make test   run all tests;                       ARGS='-k topology' hands options on"
	@echo "make lint   ruff and mypy"
	@echo "make clean  remove .venv and what the others leave"

demo: $(READY)
	$(BIN)/reshape demo --out demo-out $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest $(ARGS)

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

clean:
	rm -rf $(VENV) demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find redistribution scheduler simulator . -maxdepth 2 -name '*.so' -delete
	rm -f scheduler/compiled.digest

# Made again when pyproject.toml or what is compiled changes. Debian splits ensurepip off Python,
# hence the check.
$(READY): pyproject.toml hatch_build.py redistribution/copies/kernel.c $(COMPILED)
	@command -v $(PYTHON) >/dev/null || \
	  { echo "There is no $(PYTHON) on PATH; install Python >= 3.11, or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python >= 3.11 is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1); name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
