"""A Paraver trace (.prv, .pcf, .row): the use of each processor and the queue, for BSC's tools.

Application 1 is the machine, if individual processors were allocated. It has one thread for each
processor, in state "Running" while a job holds it, with events at the start and after each resize
for the job, its size and its wait. The last application is the queue. Its one thread has events, at
each change, for the number of waiting jobs, the processors they request, and the processors in use.
Jobs are not applications of their own because Paraver numbers objects with 16 bits.

Times are nanoseconds since the first submission. Lines are in the order of time, as Paraver
requires. Header: ``#Paraver (date):end_ns:nodes(cpus):applications:list,communicators``; a state is
``1:cpu:application:task:thread:begin:end:state``, an event
``2:cpu:application:task:thread:time:type:value...``.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from simulator.results import series
from simulator.results.jobs_csv import job_names
from simulator.results.schedule import Schedule

NAME = "schedule"
MOST_PROCESSORS = 65534  # objects have 16 bits; one is the queue
RUNNING = 1
JOB, SIZE, WAIT = 7700001, 7700002, 7700003
WAITING, WANTED, USED = 7700011, 7700012, 7700013
_LABELS = {
    JOB: "Job (0: none)",
    SIZE: "Processors of the job",
    WAIT: "Wait of the job (s)",
    WAITING: "Jobs waiting",
    WANTED: "Processors wanted by waiting jobs",
    USED: "Processors in use",
}


def encode(schedule: Schedule, began: int) -> dict[str, bytes]:
    """Write the three files of a trace.

    Parameters
    ----------
    began : time 0 in seconds since 1970; 0 if unknown.

    Returns
    -------
    name of each file -> its contents

    Raises
    ------
    ReshapeError : individual processors were allocated, and Paraver cannot number all of them.
    """
    apart, processors = schedule.allocated is not None, schedule.processors
    if apart and processors > MOST_PROCESSORS:
        raise ReshapeError(
            f"Paraver numbers at most {MOST_PROCESSORS} processors, the machine has {processors};"
            " give --select count, and the trace says how many were in use"
        )
    origin = float(schedule.jobs.submitted[schedule.ran].min())
    blocks = _queue(schedule, origin, 2 if apart else 1)
    if apart:
        blocks += _machine(schedule, origin)
    blocks.sort()
    date = datetime.fromtimestamp(began, UTC).strftime("%d/%m/%Y at %H:%M")
    end = int(_ns(schedule.ended[schedule.ran].max(), origin))
    threads = f"2:1({processors}:1):1(1:1)" if apart else "1:1(1:1)"
    header = f"#Paraver ({date}):{end}_ns:1({processors}):{threads},0"
    return {
        f"{NAME}.prv": "\n".join([header, *(lines for _, _, lines in blocks), ""]).encode(),
        f"{NAME}.pcf": _labels().encode(),
        f"{NAME}.row": _names(processors, apart).encode(),
    }


Block = tuple[int, int, str]  # time, rank at that time, lines


def _machine(schedule: Schedule, origin: float) -> list[Block]:
    """A state and events for each processor of each job, and each span between two resizes."""
    spans = schedule.place_spans()
    begins = _ns(np.array([begin for _, begin, _, _ in spans]), origin).tolist()
    ends = _ns(np.array([end for _, _, end, _ in spans]), origin).tolist()
    waits = schedule.wait.tolist()
    numbers = [name.partition("#")[0] for name in job_names(schedule)]
    blocks: list[Block] = []
    for (job, _, _, held), begin, end in zip(spans, begins, ends, strict=True):
        if begin == end:
            continue
        values = f"{JOB}:{numbers[job]}:{SIZE}:{held.count()}:{WAIT}:{round(waits[job])}"
        where = [f"{processor}:1:1:{processor}" for processor in (n + 1 for n in held)]
        states = (f"1:{at}:{begin}:{end}:{RUNNING}\n2:{at}:{begin}:{values}" for at in where)
        blocks.append((begin, 2, "\n".join(states)))
        over = f"{end}:{JOB}:0:{SIZE}:0:{WAIT}:0"
        blocks.append((end, 1, "\n".join(f"2:{at}:{over}" for at in where)))
    return blocks


def _queue(schedule: Schedule, origin: float, application: int) -> list[Block]:
    blocks: list[Block] = []
    for kind, counted in (
        (WAITING, series.waiting(schedule)),
        (WANTED, series.demand(schedule)),
        (USED, series.in_use(schedule)),
    ):
        times = _ns(counted.times, origin).tolist()
        for at, value in zip(times, counted.values.astype(np.int64).tolist(), strict=True):
            blocks.append((at, 3, f"2:0:{application}:1:1:{at}:{kind}:{value}"))
    return blocks


def _ns(times: NDArray[np.float64], origin: float) -> NDArray[np.int64]:
    """Nanoseconds since the first submission; exact to microseconds for 285 years."""
    return np.round((times - origin) * 1e6).astype(np.int64) * 1000


def _labels() -> str:
    kinds = [f"0    {kind}    {label}" for kind, label in _LABELS.items()]
    return "\n".join(
        [
            "DEFAULT_OPTIONS\n",
            "LEVEL               THREAD",
            "UNITS               NANOSEC",
            "LOOK_BACK           100",
            "SPEED               1",
            "FLAG_ICONS          ENABLED",
            "NUM_OF_STATE_COLORS 1000",
            "YMAX_SCALE          37\n",
            "DEFAULT_SEMANTIC\n",
            "THREAD_FUNC          State As Is\n",
            "STATES",
            "0    Idle",
            f"{RUNNING}    Running\n",
            "STATES_COLOR",
            "0    {117,195,255}",
            f"{RUNNING}    {{0,0,255}}\n",
            *(f"EVENT_TYPE\n{kind}\n" for kind in kinds),
            "",
        ]
    )


def _names(processors: int, apart: bool) -> str:
    numbered = [f"processor {number}" for number in range(processors)]
    threads = [*(numbered if apart else []), "queue"]
    groups = [("CPU", numbered), ("NODE", ["machine"]), ("THREAD", threads)]
    parts = ["\n".join([f"LEVEL {level} SIZE {len(of)}", *of, ""]) for level, of in groups]
    return "\n".join(parts)
