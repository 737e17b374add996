"""A command with many options: its help shows them under headings, and it names those that went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class HeadedCommand(click.Command):
    """A command whose help shows the options under headings.

    Parameters
    ----------
    headings : heading -> names of its parameters, in their order; all others come last.
    moved : option that the command once had -> what to write instead of it.
    """

    def __init__(
        self,
        *args: Any,
        headings: Mapping[str, Sequence[str]],
        moved: Mapping[str, str],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.headings, self.moved = headings, moved

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises
        ------
        click.UsageError : for an option that went, names what to write instead.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in self.moved:
                raise
            fix = self.moved[error.option_name]
            raise click.UsageError(f"{error.option_name}: write {fix}", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        records = {
            parameter.name: record
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option)
            and (record := parameter.get_help_record(ctx)) is not None
        }
        for heading, names in self.headings.items():
            with formatter.section(heading):
                formatter.write_dl([records.pop(name) for name in names])
        with formatter.section("Other"):
            formatter.write_dl([*records.values()])
