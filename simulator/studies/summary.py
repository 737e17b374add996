"""Verdicts on the claims of all papers in one table: python -m simulator.studies.summary FILE...

The files are the report.json of studies, in the order of the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from simulator.studies.claims import VERDICTS


def summary(claims: Iterable[Mapping[str, Any]]) -> str:
    """Table of the number of claims and verdicts by part of a paper, as Markdown.

    Parameters
    ----------
    claims : as a report.json has them, see `simulator.studies.claims.as_records`.
    """
    counts: dict[str, dict[str, int]] = {}
    for claim in claims:
        counts.setdefault(claim["part"], dict.fromkeys(VERDICTS, 0))[claim["verdict"]] += 1
    counts["all"] = {name: sum(own[name] for own in counts.values()) for name in VERDICTS}
    rows = [["part of a paper", "claims", *VERDICTS], ["---"] * (2 + len(VERDICTS))]
    rows += [[part, *map(str, (sum(own.values()), *own.values()))] for part, own in counts.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows).replace(" --- ", "---")


if __name__ == "__main__":
    reports = [json.loads(Path(name).read_bytes()) for name in sys.argv[1:]]
    print(summary(claim for report in reports for claim in report["claims"]))
