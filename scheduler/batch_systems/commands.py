"""Run the commands of a batch system."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence

from scheduler.batch_systems.interface import BatchSystemError

#: Longest command and error output that a message quotes, in characters.
_LONGEST = 500


def run_command(
    command: Sequence[str], *, stdin: str = "", timeout_s: float, variables: dict[str, str]
) -> tuple[str, str]:
    """Run a command to its end.

    Parameters
    ----------
    stdin : text for its standard input.
    timeout_s : after this many seconds it is killed.
    variables : its whole environment.

    Returns
    -------
    its standard output and its standard error.

    Raises
    ------
    BatchSystemError : it cannot be started, failed, or took too long.
    """
    quoted = _shortened(shlex.join(command))
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            env=variables,
            check=False,
            start_new_session=True,  # an interrupt of the caller does not reach it
        )
    except OSError as error:
        raise BatchSystemError(f"{quoted}: cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise BatchSystemError(f"{quoted}: no answer within {timeout_s:g} s") from None
    if done.returncode != 0:
        said = _shortened(" ".join(done.stderr.split()) or "no message")
        raise BatchSystemError(f"{quoted}: exit code {done.returncode}: {said}")
    return done.stdout, done.stderr


def _shortened(text: str) -> str:
    """Cut a text that a message quotes to `_LONGEST` characters."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
