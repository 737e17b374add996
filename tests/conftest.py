"""Settings and options of the whole test suite."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["collective", "hanging", "left_behind", "suite"]

# A background job of a shell ignores SIGINT, and its child processes inherit this.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the results of tests/**/*.txt as expected outputs; read the diff",
    )


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads --hypothesis-profile
def pytest_configure(config: pytest.Config) -> None:
    """Define the profiles of Hypothesis, without which a rank starts in half the time."""
    if config.getoption("--with-mpi"):
        return
    from hypothesis import settings

    # The time of one example varies too much on a machine that also runs MPI ranks. Tests scale
    # their numbers of examples by the profile: see `example_counts`. A change is judged by the same
    # examples every time; `search` draws new ones.
    settings.register_profile("search", deadline=None)
    settings.register_profile("thorough", deadline=None, derandomize=True)
    settings.register_profile("quick", deadline=None, derandomize=True, max_examples=20)
    settings.load_profile("quick")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether expected outputs are written instead of compared."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary directory whose path is short enough for sockets below it."""
    with tempfile.TemporaryDirectory(prefix="reshape-t-") as folder:
        yield Path(folder)
