"""The time of scheduling passes in a service, bounded by their depth.

The core reads no clock, so it cannot stop a pass when a time is over. The driver measures the
processor time of each decision. If one took too long, the event `DepthChanged` limits the next
passes to fewer jobs; when passes of that depth are short again, another event allows more. The
events are in the journal, so that a replay examines the same jobs.
"""

from __future__ import annotations

from typing import Final

from scheduler.model.events import DepthChanged

#: Passes are not limited to fewer jobs than this.
LEAST: Final = 50
#: So many short passes in succession, of the full depth, allow twice the depth.
SHORT_PASSES: Final = 20


class PassDepth:
    """Limit of the depth of passes.

    Parameters
    ----------
    longest_s : longest processor time of a decision, s; None: no limit.
    depth : the present limit; None: there is none.
    """

    def __init__(self, longest_s: float | None, depth: int | None) -> None:
        self._longest_s = longest_s
        self._depth = depth
        self._short = 0  # short passes of the full depth in succession

    def initial_change(self, now: float) -> DepthChanged | None:
        """Change at the start of a service: without a bound of the time, no limit remains."""
        if self._longest_s is not None or self._depth is None:
            return None
        self._depth = None
        return DepthChanged(now, None)

    def change(self, now: float, took_s: float, examined: int) -> DepthChanged | None:
        """Change of the depth that follows from a decision; None: it stays.

        Parameters
        ----------
        now : time of the service, s.
        took_s : processor time of the decision, s.
        examined : number of jobs that its pass examined.
        """
        longest_s, depth = self._longest_s, self._depth
        if longest_s is None or examined <= LEAST:
            return None
        if took_s > longest_s:
            # The time of a pass grows at least in proportion to its depth.
            self._depth = max(LEAST, int(examined * min(0.5, longest_s / took_s)))
        elif depth is None or examined < depth:
            return None
        else:
            self._short = self._short + 1 if took_s < longest_s / 8 else 0
            if self._short < SHORT_PASSES:
                return None
            self._depth = 2 * depth
        self._short = 0
        return DepthChanged(now, self._depth)
