"""Studies: grids of simulations with a report."""

from contextvars import ContextVar

#: Whether a run of a study is computed; the study shows the progress of all.
is_computing: ContextVar[bool] = ContextVar("is_computing", default=False)
