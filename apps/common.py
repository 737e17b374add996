"""What several applications share: an option, and the end of a run."""

from __future__ import annotations

import argparse
from math import isfinite

from reshape.app import Application


def add_topology(parser: argparse.ArgumentParser) -> None:
    """Add the option --topology."""
    parser.add_argument(
        "--topology", help="valid sizes of the job (default: those of its submission)"
    )


def conclude(app: Application, text: str, verified: bool, **facts: float) -> bool:
    """Report the facts of a result, and print a line with a text on rank 0.

    Facts that are not finite are reported as texts.

    Returns
    -------
    whether the result is verified.
    """
    texts = {name: value if isfinite(value) else str(value) for name, value in facts.items()}
    app.report(verified=verified, **texts)
    if app.comm.rank == 0:
        print(f"{text} {'verified' if verified else 'WRONG'}", flush=True)
    return verified
