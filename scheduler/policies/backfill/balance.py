"""Choice among the jobs that may be backfilled: the first, or one that balances the resources.

Leinberger, Karypis and Kumar, "Job scheduling in the presence of multiple resource requirements"
(KRES), section 2.2. First-Fit takes the first job in backfill order. Backfill Lowest (BL) takes
only jobs whose largest demand is for the least-used resource; Backfill Balanced (BB) prefers the
job with which the resources are used most evenly. The job with the smallest score is taken, the
first of equals in backfill order. All shares are fractions of the machine's capacity.

KRES 2.2 does not say how its fullness modifier, the mean share that stays idle, acts on the scores.
It is a factor here, with which BB's measure counts from its best value 1 on, so that a job that
balances perfectly stays the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal, TypeAlias

from scheduler.model.job import Job
from scheduler.model.machine import Machine
from scheduler.model.orders import Facts
from scheduler.model.resources import Amounts, Quantity

Pick: TypeAlias = Literal["first", "bl", "bb", "penalty"]


#: Chooses one of the jobs that may start now, given in backfill order, with the facts of the
#: choice; None: none of them is to start.
Choose: TypeAlias = Callable[[Machine, Sequence[Job]], tuple[Job, Facts] | None]

TEXT = "{pick} (KRES 2.2) takes it of {choice} that may: score {score}, in use before {used}"


def choose(
    machine: Machine,
    fitting: Sequence[Job],
    pick: Pick,
    *,
    fullness: bool,
) -> tuple[Job, Facts] | None:
    """Choose among jobs that may start now, by the present use of the machine.

    Parameters
    ----------
    fitting : at least one job, in backfill order.
    fullness : multiply the scores with the mean share that would stay idle (KRES 2.2).

    Returns
    -------
    the job and the facts of `TEXT`; None if BL takes none of them.
    """
    capacity = machine.up_amounts
    used = shares(capacity - machine.free_amounts, capacity)
    scores = []
    for job in fitting:
        demand = shares(_amounts(job.demand), capacity)
        score = lowest(used, demand) if pick == "bl" else balance(used, demand)
        if fullness:
            score = (score - 1.0 if pick == "bb" else score) * idleness(used, demand)
        scores.append(score)
    best = min(scores)
    if best == inf:
        return None
    shares_text = " ".join(f"{share:.3f}" for share in used)
    facts: Facts = {"score": best, "choice": len(fitting), "used": shares_text}
    return fitting[scores.index(best)], {"pick": pick.upper(), **facts}


def _amounts(quantity: Quantity) -> Amounts:
    return quantity if isinstance(quantity, Amounts) else Amounts((quantity,))  # type: ignore[arg-type]


def shares(quantity: Amounts, capacity: Amounts) -> list[float]:
    """Fractions of the capacity, in the order of the resources, without those of capacity 0."""
    return [part / whole for part, whole in zip(quantity, capacity, strict=True) if whole > 0]


def balance(used: Sequence[float], demand: Sequence[float]) -> float:
    """Score of BB: largest over mean share in use, with the job (KRES 2.2, the printed formula).

    Returns
    -------
    1 (all resources used alike) to K (one of K resources used alone).
    """
    after = [u + d for u, d in zip(used, demand, strict=True)]
    return max(after) * len(after) / sum(after)


def lowest(used: Sequence[float], demand: Sequence[float]) -> float:
    """Score of BL: 1 if the job's largest demand is for the least-used resource, else infinite.

    KRES 2.2 names the jobs that BL looks for and does not say that it takes others, so the others
    wait even if they fit (a score of inf). ("In order for BL to be effective, it must have K times
    as many samples", 3.3.1.) The fullness modifier then orders the jobs that remain.
    """
    return 1.0 if demand[used.index(min(used))] == max(demand) else inf


def idleness(used: Sequence[float], demand: Sequence[float]) -> float:
    """Mean share that would stay idle with the job: the fullness modifier (KRES 2.2)."""
    return 1.0 - (sum(used) + sum(demand)) / len(used)
