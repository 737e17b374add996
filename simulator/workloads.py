"""Jobs that models draw when an experiment runs, by its seed."""

from __future__ import annotations

from typing import Any

from simulator.experiment.jobs import Jobs


def lublin(jobs: int = 1000, **options: Any) -> Jobs:
    """Draw rigid jobs by the model of Lublin and Feitelson.

    Parameters
    ----------
    jobs : number of jobs.
    options : `load`, `queue`, `resources`, `law`, `estimates` and `longest_s` as of
        `TraceRequest`, and parameters of the model, such as `processors`.

    Raises
    ------
    ConfigError : an option is unknown, or a value is wrong.
    """
    return Jobs.drawn("lublin", jobs=jobs, **options)


def feitelson96(jobs: int = 1000, **options: Any) -> Jobs:
    """Draw rigid jobs by Feitelson's model of 1996; see `lublin` for the parameters."""
    return Jobs.drawn("feitelson96", jobs=jobs, **options)


def prio(jobs: int = 120, **options: Any) -> Jobs:
    """Draw the resizable jobs of PRIO section 4.

    Parameters
    ----------
    jobs : number of jobs.
    options : parameters of `PrioWorkload`.

    Raises
    ------
    ConfigError : an option is unknown, or a value is wrong.
    """
    return Jobs.drawn("prio", jobs=jobs, **options)
