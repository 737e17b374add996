"""Options and arguments that several commands share."""

from __future__ import annotations

from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

import click

from reshape.key_values import amounts
from reshape.topology import FORMS, Topology
from scheduler.client.asking import LAST
from scheduler.model.resources import checked
from scheduler.text.times import parse_walltime


class Walltime(click.ParamType[float]):
    """A positive time in the notation of Slurm, converted to seconds."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the text of an option."""
        if isinstance(value, int | float):
            return float(value)
        try:
            seconds = parse_walltime(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds == 0:
            self.fail(f"must be above 0, got {value!r}", param, ctx)
        return float(seconds)


class Priority(click.ParamType[float | str]):
    """A priority: a finite number or a name."""

    name = "PRIORITY"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        """Parse the text of an option."""
        try:
            number = float(value)
        except ValueError:
            return str(value)
        if not isfinite(number):
            self.fail(f"must be a finite number or a name, got {value!r}", param, ctx)
        return number


class ResourceAmounts(click.ParamType[dict[str, int]]):
    """Amounts of further resources, by name."""

    name = "NAME=AMOUNT,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, int]:
        """Parse the text of an option."""
        if isinstance(value, dict):
            return value
        try:
            found = amounts(value.split(","))
            checked(found)
        except ValueError as error:
            self.fail(f"{error}; an example is memory_gib=16", param, ctx)
        return found


class TopologyText(click.ParamType[Topology]):
    """The sizes on which a job can run."""

    name = "TOPOLOGY"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Topology:
        """Parse the text of an option."""
        if isinstance(value, Topology):
            return value
        try:
            return Topology.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Moment(click.ParamType[float]):
    """A local date, or date and time, converted to Unix seconds."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the text of an option."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no date: write 2026-05-01 or 2026-05-01T12:00", param, ctx)


class JobNumber(click.ParamType[int]):
    """Number of a job; the word `last` is converted to `LAST`."""

    name = "JOB"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the text of an argument."""
        if value == "last":
            return LAST
        try:
            number = int(value)
        except ValueError:
            number = -1
        if number <= LAST:
            self.fail(f"{value!r} is not a job: give a job number or 'last'", param, ctx)
        return number


TOPOLOGY_HELP = f"Sizes on which the job can run: {FORMS}. Default: as the program declares."

directory_option = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    envvar="RESHAPE_DIR",
    show_envvar=True,
    default="~/.reshape",
    show_default=True,
    callback=lambda _ctx, _param, value: Path(value).expanduser(),
    help="Directory of the service.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
parsable_option = click.option(
    "--parsable", is_flag=True, help="Separate the fields by |, for programs."
)
