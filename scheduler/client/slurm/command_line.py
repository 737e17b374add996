"""Command lines of Slurm's programs whose options are read by argparse."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from reshape.errors import ReshapeError


class CommandLine(argparse.ArgumentParser):
    """A command line; what is wrong with it is a `ReshapeError`.

    Parameters
    ----------
    name : of the program.
    """

    def __init__(self, name: str) -> None:
        super().__init__(prog=name, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise the error, whose message names the option."""
        raise ReshapeError(message)

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Read the words of a command line; a value may begin with a minus sign, as in -S -p."""
        joined: list[str] = []
        left = iter(words)
        for word in left:
            action = self._option_string_actions.get(word)
            takes_value = action is not None and action.nargs is None
            value = next(left, None) if takes_value else None
            between = "=" if word.startswith("--") else ""
            joined.append(word if value is None else f"{word}{between}{value}")
        return self.parse_args(joined)

    def flag(self, *names: str) -> None:
        """Add options without a value."""
        self.add_argument(*names, action="store_true")

    def without_effect(self, *names: str, takes_value: bool = True) -> None:
        """Add options that say what is so here, or that matter to other services only."""
        for name in names:
            action = "store" if takes_value else "store_true"
            self.add_argument(name, action=action, dest=f"unused {name}", help=argparse.SUPPRESS)
