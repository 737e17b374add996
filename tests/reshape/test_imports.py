"""The modules that an import and a help text load, in a new interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"mpi4py", "zmq", "numpy", "msgspec", "rich", "psutil", "scheduler", "simulator", "apps"}


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a new interpreter has loaded after a statement."""
    code = f"import sys\n{statement}\nprint('\\nLOADED', *{{n.split('.')[0] for n in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.rpartition("LOADED ")[2].split())


def test_importing_reshape_loads_no_large_package() -> None:
    loaded = loaded_by("import reshape; reshape.ReshapeError")
    assert "reshape" in loaded
    assert not loaded & HEAVY


def test_topology_needs_no_mpi_and_no_scheduler() -> None:
    assert not loaded_by("import reshape.topology") & (HEAVY - {"msgspec"})


def test_a_program_loads_no_module_that_few_programs_need() -> None:
    """Each rank of a group pays for what a program loads before its block."""
    loaded = loaded_by("import reshape; reshape.application")
    assert {"mpi4py", "numpy", "msgspec", "redistribution"} <= loaded
    rare = {"concurrent", "dataclasses", "difflib", "resource", "scipy", "secrets", "zmq"}
    assert not loaded & (rare | {"click", "psutil", "rich", "scheduler"})


def test_help_imports_no_subcommand() -> None:
    loaded = loaded_by(
        "from reshape.__main__ import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    )
    assert "click" in loaded
    assert not loaded & HEAVY


def test_lazy_attributes_exist_and_are_listed() -> None:
    import reshape

    assert reshape.__version__[0].isdigit()
    assert {"application", "__version__", "ReshapeError"} <= set(dir(reshape))
    assert callable(reshape.application)
    with pytest.raises(AttributeError, match="no attribute 'aplication'"):
        _ = reshape.aplication  # type: ignore[attr-defined]
