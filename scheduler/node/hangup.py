"""SIGHUP, which a terminal sends when it is closed: it ends neither a service nor an agent."""

from __future__ import annotations

import signal


def survive_hangup() -> None:
    """Continue after SIGHUP; call it in the main thread.

    The signal is handled instead of ignored, because programs that this process starts would
    inherit that it is ignored, and could not be ended by it.
    """
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
