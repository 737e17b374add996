"""Properties of the package as a whole."""

import doctest
import subprocess
import sys
from importlib import import_module

import pytest

import redistribution


def test_planning_and_checksums_start_no_mpi():
    program = "import sys, redistribution; print([m for m in sys.modules if 'mpi4py' in m])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("module", ["blocks", "layout", "plan", "routes"])
def test_examples_in_docstrings(module):
    failed, tried = doctest.testmod(
        import_module(f"redistribution.{module}"), extraglobs=vars(redistribution)
    )
    assert tried > 0
    assert failed == 0
