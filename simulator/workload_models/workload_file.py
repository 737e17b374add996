"""Workload files in YAML: resizable and rigid jobs, and the cost of resizes.

::

    processors: 16
    cost: {start_s: 0.4, join_s: 0.05, bytes_per_s: 1e9}   # all 0 if left out
    start_s: 0.5                                           # ... of a job; and end_s
    jobs:
      - {at: 0, processors: 2, max_processors: 8, topology: "arbitrary:step=2", walltime: "5:00",
         iterations: 20, iteration_s: 4, speedup: "prio:alpha=0.9", data_mib: 64}
      - {at: 2, processors: 4, min_processors: 2, max_processors: 8, walltime: "9:00",
         iterations: 30, iteration_s: 6,
         phases: [{iteration: 10, minimum: 4}, {iteration: 20, maximum: 2}]}   # requests of it
      - {at: 3, processors: 4, walltime: 120, iteration_s: 90, partition: batch}
      - {at: 3, processors: 1, walltime: 60, iteration_s: 9, dependency: "afterok:1", begin_s: 50}
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any

import msgspec

from reshape.errors import ConfigError, out_of_range
from reshape.speedup import Model, Speedup, named, parse, written
from reshape.times import seconds_of
from reshape.topology import Topology
from scheduler.model.arrays import TaskArray, TaskOf
from scheduler.model.events import JobSpec
from scheduler.model.requests import Conditions, Dependency
from scheduler.state.derived_jobs import task_spec
from scheduler.text.located import FieldPath, Located, converted
from simulator.engine.costs import Costs, ResizeCost
from simulator.engine.jobs import ProgramPhase, SimJob
from simulator.traces.swf import LARGEST
from simulator.workload_models.workload import Workload

ENDINGS = (".yaml", ".yml")
Whole = Annotated[int, msgspec.Meta(lt=2**31)]


class JobLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job of the file; times in seconds, a walltime also as a text with a unit: 10:00 or 2h.

    Parameters
    ----------
    at : time of submission, s.
    processors : requested size.
    walltime : estimate, and limit, of the run time.
    iterations : number of iterations, with a resize point between any two; a rigid job has one.
    iteration_s : time of an iteration on the requested size.
    min_processors, max_processors, topology : smallest and largest size, and valid sizes; without
        the former two it is rigid, and takes no topology, speedup, data, performance or phases.
    speedup : as `reshape.speedup.parse` reads it; None: an iteration takes as long on any size.
    data_mib : data that moves at a resize, MiB.
    name, user, queue : labels for policies and tables.
    priority : user-assigned priority; a larger one is more urgent.
    performance : performance model that the scheduler uses, as `reshape.speedup.named` reads it.
    demand : what each process demands of the shared resources of its node, by name.
    partition : name of its partition; "": the first one of the machine.
    dependency : what has to become of jobs before it, which are numbered from 1 in the order of
        their submission; see `scheduler.model.requests`.
    begin_s : time before which it does not start.
    kill_on_invalid_dep : whether it ends when its dependency can never be met.
    phases : parts of its program that request bounds on its size.
    array : indices of the tasks of an array, each of which is such a job; see
        `scheduler.model.arrays`. The tasks have the next numbers after the array.
    """

    at: float
    processors: Whole
    walltime: float | str
    iteration_s: float
    iterations: int = 1
    max_processors: Whole | None = None
    topology: str | None = None
    speedup: str | None = None
    data_mib: float = 0.0
    name: str = ""
    user: str = ""
    queue: str = "main"
    priority: float = 0.0
    performance: str = ""
    demand: dict[str, int] = {}
    partition: str = ""
    dependency: str = ""
    begin_s: float | None = None
    kill_on_invalid_dep: bool = False
    phases: tuple[ProgramPhase, ...] = ()
    array: str = ""
    min_processors: Whole | None = None


#: Fields that are the same in a `JobSpec`.
_SAME = (
    "processors", "min_processors", "max_processors", "name", "user", "queue", "priority",
    "performance", "partition",
)  # fmt: skip
#: Fields that have an effect on resizable jobs only.
OF_RESIZABLE = ("topology", "speedup", "data_mib", "performance", "phases")


class WorkloadContents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A workload file.

    Parameters
    ----------
    jobs : the jobs.
    processors : of the machine, unless the simulation names another number.
    cost : cost of a resize: fields of `ResizeCost`.
    start_s, end_s : time that a job takes to start, and to end, s.
    """

    jobs: Annotated[list[JobLine], msgspec.Meta(min_length=1)]
    processors: Whole | None = None
    cost: dict[str, Any] = {}
    start_s: float = 0.0
    end_s: float = 0.0


def looks_like_one(values: Mapping[str, Any]) -> bool:
    """Whether the fields of a file are those of a workload, also with one misspelt."""
    if "jobs" in values:
        return isinstance(values["jobs"], list)
    return any(isinstance(value, list) for value in values.values())


def read(file: Path) -> Workload:
    """Read a workload.

    Raises
    ------
    ConfigError : names file, line, field and value, and the fix.
    """
    tree = Located.read(file)
    contents = tree.convert(WorkloadContents)
    time = ">= 0 and finite"
    _check(tree, (), contents, start_s=time, end_s=time, processors=">= 1")
    try:
        cost = converted(contents.cost, ResizeCost)  # YAML takes 1e9 for text
    except ConfigError as error:
        field = error.field or error.message.partition(" ")[0]
        tree.fail(("cost", field) if field in contents.cost else ("cost",), error.message)
    jobs = [_job(tree, number, line) for number, line in enumerate(contents.jobs)]
    jobs = _numbered(tree, jobs)
    costs = Costs.constant(cost, contents.start_s, contents.end_s)
    return Workload(contents.processors, jobs, costs)


def encode(workload: Workload, comment: str) -> bytes:
    """Write a workload as `read` reads it, a line for each job; speedups are named models.

    Parameters
    ----------
    comment : first line.
    """
    costs = workload.costs
    around = {"start_s": costs.start.fixed_s, "end_s": costs.end.fixed_s}
    whole = {"processors": workload.processors, **around}
    data: dict[str, Any] = {name: value for name, value in whole.items() if value}
    cost = ResizeCost(costs.group.fixed_s, costs.join.fixed_s, costs.bytes_per_s, costs.pause_s)
    if cost != ResizeCost():
        data["cost"] = {k: v for k, v in msgspec.structs.asdict(cost).items() if v != inf}
    own = [job for job in workload.jobs if job.spec.task_of is None]
    data["jobs"] = [msgspec.to_builtins(_line(job)) for job in own]
    from scheduler.text.yaml_text import encode as yaml_of  # see scheduler/text/located.py

    return f"# {comment}\n{yaml_of(data, width=inf)}".encode()


def _line(job: SimJob) -> JobLine:
    spec, model = job.spec, job.speedup
    assert isinstance(model, Model | None)
    assert not spec.resources
    conditions = spec.conditions or Conditions()
    dependency = conditions.dependency
    line = JobLine(
        at=job.at,
        walltime=spec.walltime_s,
        iteration_s=job.iteration_s,
        iterations=job.iterations,
        demand=dict(spec.shared),
        dependency="" if dependency is None else str(dependency),
        begin_s=conditions.begin,
        kill_on_invalid_dep=conditions.kill_on_invalid,
        array="" if spec.array is None else str(spec.array),
        **{name: getattr(spec, name) for name in _SAME},
    )
    if not spec.resizable:
        return msgspec.structs.replace(line, performance="")
    return msgspec.structs.replace(
        line,
        topology=None if spec.topology is None else str(spec.topology),
        speedup=None if model is None else written(model),
        data_mib=job.data_bytes / 2**20,
        phases=job.phases,
    )


def _numbered(tree: Located, jobs: list[SimJob]) -> list[SimJob]:
    """Add the tasks of arrays, and refuse dependencies on the job itself and on later ones."""
    number, made, arrays = 0, list[SimJob](), dict[int, TaskArray]()
    for index in sorted(range(len(jobs)), key=lambda index: jobs[index].at):
        number += 1
        job = _with_dependency(tree, index, number, jobs[index], arrays)
        made.append(job)
        if job.spec.array is not None:
            arrays[number] = job.spec.array
            made += [
                msgspec.structs.replace(job, spec=task_spec(job.spec, TaskOf(number, index)))
                for index in job.spec.array.indices()
            ]
            number += job.spec.array.count
    return made


def _with_dependency(
    tree: Located, index: int, number: int, job: SimJob, arrays: Mapping[int, TaskArray]
) -> SimJob:
    """Give a job the numbers of the tasks that its dependency names; refuse one on a later job."""
    conditions = job.spec.conditions
    if conditions is None or conditions.dependency is None:
        return job
    field: FieldPath = ("jobs", index, "dependency")
    named = conditions.dependency
    wrong = next((other for other in named.jobs if other >= number), None)
    if wrong is not None:
        tree.fail(
            field,
            f"names job {wrong}, and this is job {number} in the order of submission: name"
            " earlier jobs",
        )
    try:
        named = named.numbered(arrays.get)
    except ValueError as error:
        tree.fail(field, str(error))
    changed = msgspec.structs.replace(conditions, dependency=named)
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, conditions=changed))


def _check(tree: Located, above: FieldPath, values: object, **rules: str) -> None:
    """Check the ranges of fields below a path; see `out_of_range`."""
    if fault := out_of_range(values, **rules):
        tree.fail((*above, fault[0]), fault[1])


def _job(tree: Located, number: int, line: JobLine) -> SimJob:
    """Check a job beyond its types."""
    above: FieldPath = ("jobs", number)

    def read_as(field: str, make: Any, text: Any) -> Any:
        try:
            return make(text)
        except ValueError as error:
            tree.fail((*above, field), str(error))

    line = msgspec.structs.replace(line, walltime=read_as("walltime", seconds_of, line.walltime))
    topology: Topology | None = None
    if line.topology is not None:
        topology = read_as("topology", Topology.parse, line.topology)
    model: Speedup | None = None
    if line.speedup is not None:
        model = read_as("speedup", parse, line.speedup)
    if line.performance:
        read_as("performance", named, line.performance)
    dependency: Dependency | None = None
    if line.dependency:
        dependency = read_as("dependency", Dependency.parse, line.dependency)
    elif line.kill_on_invalid_dep:
        tree.fail((*above, "kill_on_invalid_dep"), "has no effect without dependency: leave it out")
    conditions = Conditions("", line.begin_s, dependency, line.kill_on_invalid_dep)
    most, size = f"<= {LARGEST:g}", line.processors
    times = dict.fromkeys(("at", "iteration_s", "data_mib", "begin_s"), f">= 0 and {most}")
    _check(tree, above, line, walltime=f"> 0 and {most}", priority=f"finite and {most}", **times)
    _check(tree, above, line, processors=">= 1", iterations=">= 1", min_processors=">= 1")
    _check(tree, above, line, max_processors=f">= {size}")
    if line.min_processors is not None and line.min_processors > size:
        own = f"{size}, the processors of the job, got {line.min_processors}"
        tree.fail((*above, "min_processors"), f"must be <= {own}")
    for resource, amount in line.demand.items():
        if amount < 0:
            tree.fail((*above, "demand", resource), f"must be >= 0, got {amount}")
    try:
        spec = JobSpec(
            walltime_s=float(line.walltime),
            topology=topology,
            shared=line.demand,
            conditions=None if conditions == Conditions() else conditions,
            array=read_as("array", TaskArray.parse, line.array) if line.array else None,
            **{name: getattr(line, name) for name in _SAME},
        )
        if not spec.resizable:
            _check_rigid(tree, above, line)
        if topology is not None:
            topology.check_start(spec.processors, spec.min_processors)
        data_bytes = round(line.data_mib * 2**20)
        run_s = line.iterations * line.iteration_s
        return SimJob(line.at, spec, run_s, line.iterations, model, data_bytes, line.phases)
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        if name.endswith(":"):  # such as phases
            tree.fail((*above, name.removesuffix(":")), rest)
        tree.fail(above if topology is None else (*above, "topology"), str(error))


def _check_rigid(tree: Located, above: FieldPath, line: JobLine) -> None:
    """Refuse fields of a rigid job that have an effect on resizable ones only."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(JobLine)}
    for name in OF_RESIZABLE:
        if getattr(line, name) != defaults[name]:
            tree.fail(
                (*above, name),
                "has no effect, because the job is rigid; leave it out, or give the job"
                " max_processors above processors, or min_processors below",
            )
