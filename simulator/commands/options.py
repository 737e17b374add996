"""Options that several commands share, such as the rules of cleaning a trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from reshape.cli.options import WholeRange
from reshape.errors import ConfigError, ReshapeError
from reshape.key_values import key_value
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import changed, scenario

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


def scenario_by_options(
    base: Scenario | str, changes: Mapping[str, Any], options: Mapping[str, str] | None = None
) -> Scenario:
    """Scenario, or that of a name, with fields changed as options say.

    Parameters
    ----------
    options : field -> option that gave it, which messages name in place of the field; `scenario`
        stands for the name.

    Raises
    ------
    click.UsageError : the name, a field or a value is wrong.
    """
    try:
        return changed(scenario(base) if isinstance(base, str) else base, changes)
    except ConfigError as error:
        option = (options or {}).get(error.field or "")
        text = str(error) if option is None else f"{option}: {error.message}"
        raise click.UsageError(text) from None


def metrics_file(path: Path) -> dict[str, Any]:
    """Contents of metrics.json; empty if there is none."""
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ReshapeError(f"{path}: cannot be read: {error}") from None
    return metrics if isinstance(metrics, dict) else {}


def is_sweep(source: Path) -> bool:
    """Whether a file has the results of a sweep, a line of JSON each."""
    from simulator.study.runner import BEGIN  # late, as all that few commands need

    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(len(BEGIN)) == BEGIN
