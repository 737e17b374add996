"""Short programs for tests of the application object, and its wrong use."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from mpi4py import MPI

import reshape
import reshape.app
from reshape.app import Application
from reshape.errors import ReshapeError


def set_world(patch: pytest.MonkeyPatch, comm: MPI.Intracomm) -> None:
    """Let a communicator be the world of applications for the duration of a test."""
    patch.setattr(reshape.app, "WORLD", comm)  # an abort ends the real world
    patch.setattr(MPI, "COMM_WORLD", comm)


def script(folder: Path, body: str) -> str:
    """Write a program whose body runs within the application's block."""
    path = folder / "program.py"
    lines = [
        "import sys",
        "import numpy as np",
        "import reshape",
        "with reshape.application() as app:",
        textwrap.indent(textwrap.dedent(body), "    "),
    ]
    path.write_text("\n".join(lines))
    return str(path)


def check_wrong_use(use: Callable[[Application], object], error: str) -> None:
    """Check that a use of the application raises a ReshapeError that begins as expected."""
    with reshape.application() as app, pytest.raises(ReshapeError, match=f"^{re.escape(error)}"):
        use(app)
