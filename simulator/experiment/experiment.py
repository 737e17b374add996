"""An experiment: a simulation as one value, in Python, in a file and on the command line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import msgspec
import numpy as np

from reshape.errors import ConfigError, nearest
from scheduler.clock.loop import Watch
from scheduler.core.core import Core
from scheduler.policies.registry import kind_of_policy, known, name_of
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario, to_data
from scheduler.text.located import FieldPath, Located, Origin, converted
from simulator.engine.physics import ContiguityGain, SharingRules
from simulator.experiment import rules
from simulator.experiment.columns import NAMES, Frame, plain_numbers
from simulator.experiment.jobs import OF_COLUMNS, JobFields, Jobs
from simulator.experiment.run import Simulation
from simulator.experiment.running import simulated
from simulator.experiment.settings import OF_SCENARIO, QuoteRules, Settings
from simulator.experiment.tables import Columns, of_rows
from simulator.traces.files import is_file, replace_all
from simulator.traces.swf import Trace
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models.workload import Workload

#: Fields with a path that is relative to the folder of the file.
PATHS = ("machine", "advance_reservations", "pool_wait")
SOURCES = ("trace", "workload")  #: The same of its jobs.


class Experiment(Settings, frozen=True, dict=True, omit_defaults=True):
    """A simulation as one value: jobs, machine, scenario, physics and seed.

    It is checked when it is made, and the same value gives the same results. `Settings` describes
    the fields.

    Raises
    ------
    ConfigError : a value is wrong, or does not go with another one; the message names the field
        and what to change.
    """

    def __post_init__(self) -> None:
        """Check the values."""
        if not isinstance(self.jobs, Jobs):
            msgspec.structs.force_setattr(self, "jobs", _jobs(self.jobs))
        for name in self.__struct_fields__[1:]:
            value = getattr(self, name)
            if isinstance(value, np.generic | dict | list):
                msgspec.structs.force_setattr(self, name, plain_numbers(value))
        for name, kind in _types(type(self)).items():
            value = getattr(self, name)
            if type(value) is not kind and value is not None:
                msgspec.structs.force_setattr(self, name, converted(value, kind, name))
        rules.check(self)

    def replace(self, **changes: Any) -> Experiment:
        """The same with some fields changed.

        Parameters
        ----------
        changes : by field. A name with dots is a field below one, as in
            ``replace(**{"jobs.resizable.share": 0.5, "scenario.resizing.slack": 2})``.

        Raises
        ------
        ConfigError : an unknown field; see `Experiment`.
        """
        _check_names(name.partition(".")[0] for name in changes)
        whole = {name: value for name, value in changes.items() if "." not in name}
        tree = Located()
        for name, value in changes.items():
            path = tuple(name.split("."))
            if len(path) > 1:
                if path[0] not in tree.values:
                    current = whole.get(path[0], getattr(self, path[0]))
                    tree.values[path[0]] = _below(current, path[0])
                put(tree, path, plain_numbers(value), Origin())
        if "jobs" in tree.values:
            table = _jobs(whole.get("jobs", self.jobs)).table
            tree.values["jobs"] = Jobs.of(converted(tree.values["jobs"], JobFields, "jobs"), table)
        return msgspec.structs.replace(self, **(whole | tree.values))

    def run(
        self, *, whole_trace: bool = False, progress: bool = True, watch: Watch | None = None
    ) -> Simulation:
        """Simulate.

        Parameters
        ----------
        whole_trace : read all columns of a trace, so that `Simulation.swf` can
            write it with its waits.
        progress : show progress on standard error if it takes more than a few seconds.
        watch : called with (time in s, events, orders) after each instant.

        Raises
        ------
        ReshapeError : no job can run by the rules, or a rule refuses one.
        """
        made = None if watch is None else lambda *_: watch
        return simulated(self, whole_trace=whole_trace, shows_progress=progress, watch=made)

    def explain(self, job: str | int) -> Columns:
        """Simulate, and tell why a job waited, where it started and why it was resized or not.

        Parameters
        ----------
        job : as the column `job` of `Simulation.jobs` has it.

        Returns
        -------
        table with a row for each decision: `at_s` (s), `decision` ("wait", "start", "expand",
        "contract", "continue", "kill", "requeue"), `rule` and `reason`, a sentence with the numbers
        that the rule saw. Reasons number jobs from 1 in the order of `Simulation.jobs`. Equal
        decisions in succession are one row, the first of them. Of several centres a column `centre`
        names the one that decided, unless one core decides for all of them.

        Raises
        ------
        ConfigError : no job has the number. See also `run`.
        """
        from simulator.experiment.watches import JobDecisions  # late, as all that few runs need

        told: list[JobDecisions] = []
        names: list[str] = []

        def watch(cores: Sequence[Core], jobs: TraceJobs) -> Watch:
            told.append(JobDecisions(cores, jobs, str(job)))
            if len(cores) > 1:
                names.extend(centre.name for centre in self.centres or ())
            return told[0]

        simulated(self, watch=watch)
        rows = (
            (at_s, names[core] if names else "", decision, rule, reason)
            for at_s, decision, rule, reason, core in told[0].rows
        )
        columns = of_rows(("at_s", "centre", "decision", "rule", "reason"), rows)
        if not names:
            del columns["centre"]
        return columns

    @classmethod
    def from_file(cls, path: str | Path) -> Experiment:
        """Read an experiment from a YAML file; paths in it are relative to its folder.

        Raises
        ------
        ConfigError : names file, line, field and value, and the fix.
        """
        return cls.of_tree(Located.read(Path(path)), Path(path).parent)

    @classmethod
    def of_tree(cls, tree: Located, folder: Path) -> Experiment:
        """Experiment of the contents of a file.

        Parameters
        ----------
        folder : to which paths are relative.
        """
        values = dict(tree.values)
        for name in values:
            if name not in cls.__struct_fields__:
                tree.fail((name,), f"unknown field{nearest(name, cls.__struct_fields__)}")
        if "jobs" not in values:
            tree.fail(("jobs",), "is missing; give the path of a trace, a mapping, or a list")
        for name in PATHS:
            value = values.get(name)
            if isinstance(value, str) and is_file(folder / value):
                values[name] = str(folder / value)
        try:
            values["jobs"] = _jobs(values["jobs"], folder)
            return cls(**values)
        except ConfigError as error:
            field = (error.field or "").split(".")
            if error.file in PATHS:  # the contents of a field
                field.insert(0, error.file)
            elif error.file is not None and error.line is not None:
                raise
            elif error.file is not None:  # a file that the experiment names
                named = [name for name in PATHS if values.get(name) == error.file]
                tree.fail((named[0] if named else "jobs",), str(error))
            elif field[0] not in cls.__struct_fields__:
                field.insert(0, "jobs")
            tree.fail(tuple(filter(None, field)), error.message)

    def save(self, path: str | Path) -> None:
        """Write the experiment as a YAML file that `from_file` reads, with paths relative to it.

        Raises
        ------
        ConfigError : a field holds an object that no name stands for.
        ReshapeError : the file cannot be written.
        """
        from scheduler.text.yaml_text import encode  # late: most programs write none

        data, folder = self.data(), Path(path).resolve().parent
        for group, names in ((data, PATHS), (data["jobs"], SOURCES)):
            for name in names:
                if isinstance(group.get(name), str) and is_file(Path(group[name])):
                    group[name] = os.path.relpath(Path(group[name]).resolve(), folder)
        replace_all({Path(path): encode(data).encode()})

    def data(self) -> dict[str, Any]:
        """The experiment as plain data; defaults are left out.

        Raises
        ------
        ConfigError : a field holds an object that no name stands for.
        """
        data: dict[str, Any] = {"jobs": self.jobs.data()}
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if field.name != "jobs" and rules.is_set(self, field.name):
                data[field.name] = _plain(value, field.name)
        return data


@cache
def _types(kind: type[Settings]) -> dict[str, Any]:
    """Fields that hold a number, a truth value or a choice -> type, without None."""
    fields = msgspec.structs.fields(kind)
    types = {
        f.name: get_args(f.type)[0] if get_origin(f.type) is UnionType else f.type for f in fields
    }
    return {n: t for n, t in types.items() if t in (int, float, bool) or get_origin(t) is Literal}


def simulate(jobs: Any, **fields: Any) -> Simulation:
    """Simulate jobs: ``Experiment(jobs, **fields).run()``.

    Parameters
    ----------
    jobs : `Jobs`, the path of a trace or workload file, or columns as a mapping or a data frame.
    fields : further fields of the experiment; see `Settings`.

    Raises
    ------
    ReshapeError : see `Experiment` and `Experiment.run`.
    """
    _check_names(fields)
    return Experiment(jobs, **fields).run()


def _check_names(fields: Iterable[str]) -> None:
    """Check that an experiment has these fields."""
    for name in fields:
        if name not in Experiment.__struct_fields__:
            fix = nearest(name, Experiment.__struct_fields__)
            raise ConfigError(f"unknown field{fix}", field=name)


#: Field that may be a name or a number -> the field below it for which that stands.
_SHORT = {
    "scenario": "name",
    "sharing": "windows",
    "contiguity": "speedup",
    **dict.fromkeys(("queue_order", "backfill_order", "estimates", "select"), "policy"),
}


def put(tree: Located, path: FieldPath, value: Any, origin: Origin) -> None:
    """Set a field in the data of an experiment, or one below a field.

    A field on the way that has the short form becomes a mapping.

    Raises
    ------
    ConfigError : a field on the way has no fields below it, or none that are set one by one.
    """
    top = path[:1]
    held, main = tree.get(top), _SHORT.get(str(path[0]))
    if len(path) > 1 and main is not None and isinstance(held, str | int | float):
        tree.override(top, {main: held}, tree.origin(top))
    elif isinstance(held, dict):
        held.pop(".".join(map(str, path[1:])), None)  # the same field, written with dots
    if path[:2] == ("jobs", "columns"):
        raise ConfigError("unknown field; give other jobs", field="jobs.columns")
    tree.override(path, value, origin)


def _below(value: Any, name: str) -> Any:
    """Plain data of a field, of which parts can be changed."""
    if name == "jobs":
        return msgspec.to_builtins(_jobs(value).fields)
    if isinstance(value, Mapping):
        return _copied(value)
    return {} if value is None else _plain(value, name)


def _copied(value: Any) -> Any:
    """Copy of mappings within one another; what they hold besides, such as policies, stays."""
    is_mapping = isinstance(value, Mapping)
    return {str(key): _copied(item) for key, item in value.items()} if is_mapping else value


def _jobs(jobs: Any, folder: Path | None = None) -> Jobs:
    """Jobs of a path or of plain data."""
    if isinstance(jobs, Jobs):
        return jobs
    if isinstance(jobs, str | Path):
        path = Path(jobs)
        return Jobs.read(path if folder is None else folder / path)
    if isinstance(jobs, Frame | Trace | Workload):
        return Jobs(jobs)
    if not isinstance(jobs, Mapping):
        raise ConfigError(
            f"must be Jobs, the path of a file, a mapping, a data frame, a trace or a workload, got"
            f" {jobs!r}",
            field="jobs",
        )
    if jobs.keys() & NAMES:
        return Jobs(jobs)
    own = jobs.get("rules", {})
    if "columns" in jobs and isinstance(own, Mapping):
        usual = {"larger": OF_COLUMNS.larger, "without_run": OF_COLUMNS.without_run}
        jobs = {**jobs, "rules": {**usual, **own}}
    fields = converted(jobs, JobFields, "jobs")
    if folder is not None:
        for name in SOURCES:
            path_text = getattr(fields, name)
            if path_text is not None:
                fields = msgspec.structs.replace(fields, **{name: str(folder / path_text)})
    return Jobs.of(fields)


def _plain(value: Any, name: str) -> Any:
    """Plain data of a value; of a policy, its name and its parameters."""
    try:
        if name == "scenario" and not isinstance(value, str | Mapping):
            return _of_scenario(value)
        if name in OF_SCENARIO and not isinstance(value, str | Mapping):
            kind = {"queue_order": "order", "backfill_order": "order", "select": "selection"}
            return _of_policy(kind.get(name, name), value)
        if isinstance(value, ContiguityGain | SharingRules | QuoteRules):
            return msgspec.to_builtins(value)
        return _of_data(value)
    except TypeError:
        raise ConfigError(
            f"{value!r} cannot be written to a file; give a name, such as module:Class, or a"
            " mapping",
            field=name,
        ) from None


def _of_policy(kind: str, value: object) -> dict[str, Any]:
    """Name of the class of a policy, and its parameters."""
    name = name_of(kind, value)
    if name.startswith("__main__:"):
        raise TypeError(name)
    parameters: dict[str, Any] = msgspec.to_builtins(value)
    return {"policy": name} | parameters


def _of_scenario(value: object) -> dict[str, Any]:
    """Name of a scenario, and the fields that differ; or a policy that makes a scenario."""
    if not isinstance(value, Scenario):
        kind = kind_of_policy(type(value).__name__, type(value))
        policy = _of_policy(kind, value)
        return {"name": policy.pop("policy")} | ({kind: policy} if policy else {})
    if value.name not in known("scenario"):
        raise TypeError(value.name)
    base, data = to_data(scenario(value.name)), to_data(value)
    return {"name": value.name} | {k: v for k, v in data.items() if v != base[k]}


def _of_data(value: object) -> Any:
    """Numbers, texts, mappings and lists of them; a TypeError for another object."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _of_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_of_data(item) for item in value]
    raise TypeError(value)
