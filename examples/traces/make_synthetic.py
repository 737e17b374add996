"""Generator of `synthetic.swf`: 1500 jobs in eight days on 128 processors, drawn at random.

More jobs are submitted by day than by night, sizes are mostly powers of two, run times are
log-normal, and requested times are round numbers well above the run times.

python examples/traces/make_synthetic.py > examples/traces/synthetic.swf
"""

from __future__ import annotations

import numpy as np

JOBS, PROCESSORS, DAYS = 1500, 128, 8
DAY_S = 86400
ROUND_S = np.array([300, 900, 1800, 3600, 7200, 14400, 28800, 57600, 86400])


def main() -> None:
    rng = np.random.default_rng(1)
    at = np.sort(rng.uniform(0, DAYS, 4 * JOBS))
    busy = 1 + 0.8 * np.sin(2 * np.pi * (at - 0.375))  # the maximum is at 15:00
    chosen = rng.choice(len(at), JOBS, replace=False, p=busy / busy.sum())
    submitted = (at[np.sort(chosen)] * DAY_S).astype(int)
    sizes = 2 ** rng.binomial(6, 0.45, JOBS)
    odd = rng.random(JOBS) < 0.2
    sizes = np.where(odd, np.maximum(1, sizes - rng.integers(0, sizes)), sizes)
    runs = np.clip(rng.lognormal(7.6, 1.5, JOBS), 5, 80000).astype(int)
    needed = runs * rng.uniform(1, 5, JOBS)
    requested = ROUND_S[np.minimum(np.searchsorted(ROUND_S, needed), len(ROUND_S) - 1)]
    users = rng.zipf(1.6, JOBS) % 25 + 1
    print("; Version: 2.2\n; Computer: none, drawn at random")
    print(f"; MaxJobs: {JOBS}\n; MaxProcs: {PROCESSORS}")
    columns = zip(submitted, runs, sizes, requested, users, strict=True)
    for number, (submit, run, size, request, user) in enumerate(columns, 1):
        print(f"{number} {submit} -1 {run} {size} -1 -1 {size} {request} -1 1 {user}" + " -1" * 6)


if __name__ == "__main__":
    main()
