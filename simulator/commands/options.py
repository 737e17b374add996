"""Options that several commands share, such as the rules of cleaning a trace."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.core import ParameterSource

from reshape.cli.options import WholeRange
from reshape.key_values import key_value

processors_option = click.option(
    "--processors",
    type=WholeRange(min=1),
    metavar="NUMBER",
    help="Processors of the machine.  [default: as the header of the trace says]",
)
lenient_option = click.option(
    "--lenient", is_flag=True, help="Leave out malformed lines, and report their number."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def given() -> dict[str, str]:
    """Options on the command line: name of the parameter -> option."""
    context = click.get_current_context()
    return {
        str(parameter.name): parameter.opts[0]
        for parameter in context.command.params
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    }


def set_fields(texts: Iterable[str]) -> dict[str, str]:
    """Read the texts ``FIELD=VALUE`` of the option ``--set``; of a repeated field the last counts.

    Raises
    ------
    click.UsageError : a text has no field or no value.
    """
    try:
        return dict(map(key_value, texts))
    except ValueError as error:
        raise click.UsageError(f"--set {error}") from None
