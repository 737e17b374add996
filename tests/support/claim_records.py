"""The form that claims have in the data of every study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

KEYS = ["id", "text", "paper", "ours", "low", "high", "verdict", "part", "where", "remark"]


def check_claims(data: Mapping[str, Any], *, some: bool = True) -> None:
    """Check the claims of a report: keys, types, verdicts, and ids that occur once.

    Parameters
    ----------
    some : there is at least one claim, and at least one has a number.
    """
    claims = data["claims"]
    for claim in claims:
        assert [*claim] == KEYS
        assert isinstance(claim["id"], str)
        assert isinstance(claim["text"], str)
        assert claim["paper"] is None or isinstance(claim["paper"], str | int | float)
        for name in ("ours", "low", "high"):
            assert claim[name] is None or type(claim[name]) is float, f"{name} of {claim}"
        assert claim["verdict"] in ("held", "opposite", "open")
        json.dumps(claim)
    assert len({claim["id"] for claim in claims}) == len(claims)
    if some:
        assert any(claim["ours"] is not None for claim in claims)
