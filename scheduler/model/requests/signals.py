"""Signals to the processes of a job: before the end of its walltime, or at the request of a user.

The text forms are those of Slurm: ``USR1``, ``SIGUSR1`` or ``10``, and of an option
``B:USR1@120``.
"""

from __future__ import annotations

import signal

import msgspec

from reshape.key_values import whole_number

FORM = "SIGNAL, SIGNAL@SECONDS or B:SIGNAL@SECONDS, such as USR1@120"
#: Seconds before the end of the walltime, if none are given, and at most.
DEFAULT_S, MOST_S = 60, 65535


class EndSignal(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A signal that a job gets before the end of its walltime.

    Parameters
    ----------
    number : of the signal.
    before_s : how long before the end of the walltime, s.
    to_script : whether the script of the job gets it, and none of the processes that it started.
    """

    number: int
    before_s: int = DEFAULT_S
    to_script: bool = False

    @classmethod
    def parse(cls, text: str) -> EndSignal:
        """Read a signal such as ``B:USR1@120``.

        Raises
        ------
        ValueError : it is none.
        """
        target, colon, rest = text.rpartition(":")
        if colon and target != "B":
            raise ValueError(f"{target!r} in {text!r} is not B: write {FORM}")
        name, at, seconds = rest.partition("@")
        before_s = whole_number(seconds, MOST_S) if at else DEFAULT_S
        if before_s is None:
            raise ValueError(
                f"{seconds!r} is no number of seconds from 0 to {MOST_S}: write {FORM}"
            )
        return cls(signal_number(name), before_s, bool(colon))

    def __str__(self) -> str:
        """The signal as a user writes it."""
        return f"{'B:' if self.to_script else ''}{signal_name(self.number)}@{self.before_s}"


class SentSignal(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The last signal that was ordered for a job.

    Parameters
    ----------
    serial : numbers the signals of a job from 1 on.
    number : of the signal.
    groups : the groups on which the job computed then.
    to_script : as of `EndSignal`.
    """

    serial: int
    number: int
    groups: tuple[int, ...]
    to_script: bool = False


def signal_number(text: str) -> int:
    """Return the number of a signal from its name, with or without SIG, or from its number.

    Raises
    ------
    ValueError : there is no such signal.
    """
    try:
        if (number := whole_number(text)) is not None:
            return signal.Signals(number).value
        return signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"].value
    except (KeyError, ValueError):
        raise ValueError(f"{text!r} is no signal: write a name or a number, such as USR1") from None


def signal_name(number: int) -> str:
    """Name of a signal without SIG; its number if it has no name."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
