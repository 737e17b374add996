"""``reshape replay --sites``: compare the choices between live services with simulated ones."""

from __future__ import annotations

from math import inf
from pathlib import Path

import click
import msgspec

from reshape.errors import ReshapeError
from scheduler.client.sites.sites_file import read_sites
from scheduler.text.formats import counted
from scheduler.text.tables import Table, render
from simulator.live_runs.recorded_sites import (
    ComparedChoice,
    asked_times,
    compare_choices,
    read_run,
)

#: File of a demonstration with the times at which the sites were asked.
CHOICES = "choices.json"


def replay_sites(folder: Path, sites: Path, metric: str, *, as_json: bool) -> int:
    """Compare the choices, print them, and return the exit code: 1 if one differs.

    Parameters
    ----------
    folder : with the journals, and the file CHOICES if there is one.
    sites : the sites file.
    """
    file = folder / CHOICES
    try:
        asked = asked_times(msgspec.json.decode(file.read_bytes())) if file.exists() else {}
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ReshapeError(f"{file} is damaged: {error!r}") from None
    compared = compare_choices(read_run(read_sites(sites), folder, asked), metric)
    same = sum(choice.is_same for choice in compared)
    if as_json:
        click.echo(msgspec.json.encode(_data(metric, same, compared)))
    else:
        click.echo(render(_table(compared)))
        click.echo(f"{same} of {counted(len(compared), 'choice')} by {metric} are the same")
    return int(same < len(compared))


def _data(metric: str, same: int, compared: list[ComparedChoice]) -> dict[str, object]:
    choices = [
        {
            "live": choice.live,
            "at_s": choice.at_s,
            "processors": choice.processors,
            "simulated": choice.simulated,
            "same": choice.is_same,
            "waits_s": {n: None if wait == inf else wait for n, wait in choice.waits_s.items()},
        }
        for choice in compared
    ]
    return {"metric": metric, "jobs": len(compared), "same": same, "choices": choices}


def _table(compared: list[ComparedChoice]) -> Table:
    names = list(dict.fromkeys(name for choice in compared for name in choice.waits_s))
    rows = []
    for choice in compared:
        waits = [choice.waits_s.get(name) for name in names]
        rows.append(
            (
                choice.live,
                f"{choice.at_s:.2f}",
                str(choice.processors),
                *("-" if wait is None else f"{wait:.1f}" for wait in waits),
                choice.simulated,
                "yes" if choice.is_same else "NO",
            )
        )
    head = (
        "LIVE",
        "ASKED, S",
        "PROCS",
        *(f"WAIT {name}, S" for name in names),
        "SIMULATED",
        "SAME",
    )
    return Table(head, rows, left=frozenset({"LIVE", "SIMULATED", "SAME"}))
