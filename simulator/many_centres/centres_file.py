"""Machine files that name several centres.

.. code-block:: yaml

    centres:
      - name: CTC
        processors: 412
        cpu_factor: 1.5           # run times are 1.5 times as long (default 1)
        units_per_hour: 420       # allocation units of a processor for an hour (default 1)
        cost_per_unit: 1.12       # (default 0)
        scenario: easy            # (default easy)
        set: {backfill_order: sjf}    # fields of the scenario
      - {name: SDSC, processors: 128, scenario: fcfs}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from reshape.errors import ConfigError
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from scheduler.policies.selection.first_fit import FirstFit
from scheduler.text.located import Located

Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class CentreFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A centre of a machine file.

    Parameters
    ----------
    name : of the centre.
    processors : number of its processors.
    cpu_factor : factor of all run times; 2 is half as fast as 1.
    units_per_hour : allocation units that a processor costs for an hour.
    cost_per_unit : cost of an allocation unit.
    scenario : name of the scenario by which it schedules.
    set : values for fields of the scenario, by dotted name.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    processors: Count
    cpu_factor: Positive = 1.0
    units_per_hour: NotNegative = 1.0
    cost_per_unit: NotNegative = 0.0
    scenario: str = "easy"
    set: dict[str, Any] = {}


class CentresFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine file of several centres.

    Parameters
    ----------
    centres : the centres between which jobs are divided.
    """

    centres: Annotated[list[CentreFields], msgspec.Meta(min_length=1)]


class CentreDescription(msgspec.Struct, frozen=True):
    """A centre as described by a machine file.

    Parameters
    ----------
    name : of the centre.
    processors : number of processors.
    scenario : rules by which the centre schedules.
    cpu_factor : factor of all run times; 2 is half as fast as 1.
    units_per_hour : allocation units that a processor costs for an hour.
    cost_per_unit : cost of an allocation unit.
    """

    name: str
    processors: int
    scenario: Scenario
    cpu_factor: float = 1.0
    units_per_hour: float = 1.0
    cost_per_unit: float = 0.0

    @property
    def price(self) -> float:
        """Cost of a processor for an hour."""
        return self.units_per_hour * self.cost_per_unit


def names_centres(file: Path) -> bool:
    """Whether a machine file names several centres.

    Raises
    ------
    ConfigError : the file cannot be read or is not YAML.
    """
    return "centres" in Located.read(file).values


def read_centres(file: Path) -> list[CentreDescription]:
    """Read a machine file of several centres.

    Raises
    ------
    ConfigError : the file is invalid; the message names file, line and field.
    """
    return described_centres(Located.read(file))


def described_centres(tree: Located) -> list[CentreDescription]:
    """Centres that the contents of a machine file describe.

    Raises
    ------
    ConfigError : see `read_centres`.
    """
    given = tree.values.get("centres")
    for i, centre in enumerate(given if isinstance(given, list) else ()):
        if isinstance(centre, dict) and "nodes" in centre:
            tree.fail(
                ("centres", i, "nodes"),
                "the processors of a centre are only counted; give their number as processors",
            )
    fields = tree.convert(CentresFields).centres
    centres: list[CentreDescription] = []
    for i, each in enumerate(fields):
        above = ("centres", i)
        if any(each.name == other.name for other in fields[:i]):
            tree.fail((*above, "name"), f"two centres are named {each.name!r}; rename one")
        try:
            chosen = scenario(each.scenario, each.set)
        except ConfigError as error:
            field = "scenario" if error.field == "scenario" else "set"
            tree.fail((*above, field), error.message if field == "scenario" else str(error))
        if chosen.selection != FirstFit():
            tree.fail(
                (*above, "set"),
                "selection has no effect, because the processors of a centre are only counted;"
                " leave it out",
            )
        if chosen.redirection is not None:
            tree.fail((*above, "scenario"), "a centre is one group; leave redirection out")
        centres.append(
            CentreDescription(
                each.name,
                each.processors,
                chosen,
                each.cpu_factor,
                each.units_per_hour,
                each.cost_per_unit,
            )
        )
    return centres
