"""Settings and options of the whole test suite."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# The time of one example varies too much on a machine that also runs MPI ranks.
settings.register_profile("reshape", deadline=None)
settings.load_profile("reshape")

# A background job of a shell ignores SIGINT, and its child processes inherit this.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the results of tests/**/*.txt as expected outputs; read the diff",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether expected outputs are written instead of compared."""
    return bool(request.config.getoption("--rewrite"))
