"""Which of the jobs that may pass others is taken: the first, or the one that balances resources.

Leinberger, Karypis and Kumar, "Job scheduling in the presence of multiple resource requirements"
(KRES), section 2.2. First-Fit takes the first in passing order. Backfill Lowest (BL) takes none but
jobs whose largest requirement is for the resource that is used least; Backfill Balanced (BB) wants
the job with which the resources would be used most evenly. Both are scored, the smallest score
wins, ties go to the first in passing order. All shares are parts of what the machine has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal, TypeAlias

from scheduler.model.job import Job
from scheduler.model.orders import Facts
from scheduler.model.resources import Amounts, Quantity
from scheduler.state.view import View

Pick: TypeAlias = Literal["first", "bl", "bb"]


#: Chooses one of the jobs that may start now, given in passing order, and says by what numbers;
#: None: it wants none of them.
Choose: TypeAlias = Callable[[View, Sequence[Job]], tuple[Job, Facts] | None]

TEXT = "{pick} (KRES 2.2) takes it of {choice} that may: score {score}, in use before {used}"


def choose(
    view: View, fitting: Sequence[Job], pick: Pick, *, fullness: bool
) -> tuple[Job, Facts] | None:
    """Choose among jobs that may start now, as the machine stands now.

    Parameters
    ----------
    fitting : at least one, in passing order.
    fullness : multiply the measure by what would stay idle on average (KRES 2.2's modifier).

    Returns
    -------
    the job and the facts of `TEXT`; None if BL finds nobody it looks for.
    """
    up = view.machine.up_amounts
    used = shares(up - view.machine.free_amounts, up)
    measure = lowest if pick == "bl" else balance
    scores = []
    for job in fitting:
        wanted = shares(_amounts(job.needs), up)
        score = measure(used, wanted)
        scores.append(score * idleness(used, wanted) if fullness else score)
    best = min(scores)
    if best == inf:
        return None
    told = " ".join(f"{share:.3f}" for share in used)
    facts: Facts = {"pick": pick.upper(), "score": best, "choice": len(fitting), "used": told}
    return fitting[scores.index(best)], facts


def _amounts(quantity: Quantity) -> Amounts:
    return quantity if isinstance(quantity, Amounts) else Amounts((quantity,))  # type: ignore[arg-type]


def shares(quantity: Amounts, capacity: Amounts) -> list[float]:
    """Parts of the capacity, in the order of the resources; those that nobody has are left out."""
    return [part / whole for part, whole in zip(quantity, capacity, strict=True) if whole > 0]


def balance(used: Sequence[float], wanted: Sequence[float]) -> float:
    """BB's measure: largest over mean share in use, with the job (KRES 2.2, the printed formula).

    Returns
    -------
    1 (all resources alike) to K (one resource alone).
    """
    after = [u + w for u, w in zip(used, wanted, strict=True)]
    return max(after) * len(after) / sum(after)


def lowest(used: Sequence[float], wanted: Sequence[float]) -> float:
    """BL's measure: 1 if the job wants the least used resource most, else inf.

    KRES 2.2 says whom BL looks for, and of nobody else that he is taken; so the others wait, even
    if they fit. ("In order for BL to be effective, it must have K times as many samples", 3.3.1.)
    The modifier then orders those who are left.
    """
    return 1.0 if wanted[used.index(min(used))] == max(wanted) else inf


def idleness(used: Sequence[float], wanted: Sequence[float]) -> float:
    """Mean share that would stay idle with the job: the fullness modifier (KRES 2.2)."""
    return 1.0 - (sum(used) + sum(wanted)) / len(used)
