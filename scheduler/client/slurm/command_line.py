"""Command lines of Slurm's programs whose options are read by argparse."""

from __future__ import annotations

import argparse
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

    def flag(self, *names: str) -> None:
        """Add options without a value."""
        self.add_argument(*names, action="store_true")

    def without_effect(self, *names: str, takes_value: bool = True) -> None:
        """Add options that say what is so here, or that matter to other services only."""
        for name in names:
            action = "store" if takes_value else "store_true"
            self.add_argument(name, action=action, dest=f"unused {name}", help=argparse.SUPPRESS)
