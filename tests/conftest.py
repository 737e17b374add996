"""Settings and options of the whole test suite."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# The time one example takes says nothing on a machine shared with MPI ranks.
settings.register_profile("reshape", deadline=None)
settings.load_profile("reshape")

# A shell's background job ignores SIGINT, and so would all that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the scripts in tests/**/*.txt give as what is expected; read the diff",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether expected outputs are to be written anew instead of compared."""
    return bool(request.config.getoption("--rewrite"))
