"""The fault campaign: rounds of real jobs on real services, with faults in every phase.

    python benchmarks/reliability/campaign.py --rounds N [--seed S] [--out DIR] [--json]
    python benchmarks/reliability/campaign.py --seeds 5,1028 [--out DIR] [--json]

Round K uses seed S + K. `--out` keeps the outcome of each round in DIR/rounds.jsonl and the files
of rounds in which something failed; a campaign that is run again there does only the rounds that
are missing, and the totals cover all rounds in DIR. The exit code is 1 if anything was lost, wrong,
hung or leaked.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from isolation import isolated
from round_service import HERE

DEFECTS = ("lost", "wrong", "hung", "leaked")
#: Seconds after which a round is ended; its jobs count as hung.
ROUND_S = 600.0


def run_round(seed: int, out: Path) -> dict[str, Any]:
    """Run the round of a seed; return its outcome. Its files stay if something failed."""
    folder = Path(tempfile.mkdtemp(prefix=f"round-{seed}-", dir=out))
    command = [sys.executable, str(HERE / "one_round.py"), str(seed), str(folder / "files")]
    environment = dict(os.environ)
    paths = [str(HERE), str(HERE.parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    try:
        done = subprocess.run(
            isolated(command),
            capture_output=True,
            text=True,
            timeout=ROUND_S,
            env=environment,
            check=False,
        )
        outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        outcome = _failed(seed, f"the round did not end within {ROUND_S:g} s")
    except (IndexError, ValueError):
        outcome = _failed(seed, f"the round ended with {done.returncode}: {done.stderr[-2000:]}")
    if any(outcome[defect] for defect in DEFECTS):
        outcome["files"] = str(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _failed(seed: int, why: str) -> dict[str, Any]:
    empty: dict[str, Any] = {name: [] for name in ("faults", "phases", "states", *DEFECTS)}
    return empty | {"seed": seed, "jobs": 0, "resizes": 0, "restarts": 0, "hung": [why]}


def row(outcome: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a table for the outcome of a round."""
    found = [f"{name}: {each}" for name in DEFECTS for each in outcome[name]]
    return {
        "seed": outcome["seed"],
        "fault": ", ".join(outcome["faults"]),
        "phase": ", ".join(outcome["phases"]),
        "outcome": "; ".join(found) or "ok",
    }


def totals(outcomes: list[dict[str, Any]]) -> dict[str, int]:
    """Return the sums over all rounds; each defect counts once a job, processor or entry."""
    sums = {"rounds": len(outcomes)}
    for name in ("jobs", "resizes", "restarts"):
        sums[name] = sum(outcome[name] for outcome in outcomes)
    for name in DEFECTS:
        sums[name] = sum(len(outcome[name]) for outcome in outcomes)
    return sums


def main() -> int:
    """Run a campaign."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="number of rounds (20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first round (0)")
    parser.add_argument("--seeds", help="these seeds instead, separated by commas")
    parser.add_argument("--parallel", type=int, default=1, help="rounds at a time (1)")
    parser.add_argument("--out", type=Path, help="folder for outcomes; continues a campaign")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="campaign-"))
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    record = out / "rounds.jsonl"
    lines = record.read_text().splitlines() if record.exists() else []
    outcomes = {outcome["seed"]: outcome for outcome in map(json.loads, lines)}
    seeds = list(range(options.seed, options.seed + options.rounds))
    if options.seeds is not None:
        seeds = [int(seed) for seed in options.seeds.split(",")]
    missing = [seed for seed in seeds if seed not in outcomes]
    with ThreadPoolExecutor(options.parallel) as pool, record.open("a") as file:
        for outcome in pool.map(lambda seed: run_round(seed, out), missing):
            outcomes[outcome["seed"]] = outcome
            file.write(json.dumps(outcome) + "\n")
            file.flush()
            if not options.json:
                each = row(outcome)
                print(*each.values(), sep=" | ", flush=True)
    found = [outcomes[seed] for seed in sorted(outcomes)]
    sums = totals(found)
    if options.json:
        print(json.dumps({"rows": [row(outcome) for outcome in found], "totals": sums}))
    else:
        print(", ".join(f"{name} {count}" for name, count in sums.items()))
    return int(any(sums[name] for name in DEFECTS))


if __name__ == "__main__":
    sys.exit(main())
