"""The jobs of a simulation of several centres as CSV."""

from __future__ import annotations

import csv
import io

from simulator.many_centres.schedule import CentresSchedule

COLUMNS = ("job", "origin", "centre", "processors", "submitted_s", "started_s", "ended_s", "cost")


def jobs_csv(found: CentresSchedule) -> bytes:
    """Write one line for each job that ran, in the order of submission, with `COLUMNS`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    schedule, cost, ran = found.schedule, found.cost.tolist(), found.ran
    for i in ran.nonzero()[0].tolist():
        writer.writerow(
            (
                int(schedule.jobs.numbers[i]),
                found.origins[i],
                found.centres[found.ran_at[i]].name,
                int(schedule.jobs.processors[i]),
                *(
                    f"{time:.15g}"
                    for time in (
                        schedule.jobs.submitted[i],
                        schedule.started[i],
                        schedule.ended[i],
                    )
                ),
                f"{cost[i]:.6f}",
            )
        )
    return text.getvalue().encode()
