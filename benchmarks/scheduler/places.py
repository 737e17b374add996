"""Cost of processor selections on machines of 1 000 to 100 000 processors.

    python benchmarks/scheduler/places.py [--json]

A machine is filled to 85 % with jobs of random sizes; then jobs end and others start one by one.
`search` is the mean time of a selection, whether it accepts processors or not; `change` is the mean
time to take and release them. Both are in microseconds of processor time. The selections on meshes
have a torus of two and of three dimensions, with as many nodes as processors.
"""

from __future__ import annotations

import argparse
import json
import random
import time

from scheduler.model.interfaces import Selection
from scheduler.model.network import Mesh, Network, Tree
from scheduler.model.procset import ProcSet
from scheduler.model.space import Space
from scheduler.policies.selection.basic import Contiguous, FirstFit
from scheduler.policies.selection.on_network import Submesh, SubmeshRelaxed, TreeContiguous

SELECTIONS: dict[str, Selection] = {
    "first-fit": FirstFit(),
    "contiguous": Contiguous(),
    "tree": TreeContiguous(),
    "submesh": Submesh(),
    "submesh-relaxed": SubmeshRelaxed(),
}
LEVELS = {1_000: 5, 10_000: 7, 100_000: 9}
DIMS = {
    1_000: [(25, 40), (10, 10, 10)],
    10_000: [(100, 100), (20, 20, 25)],
    100_000: [(250, 400), (40, 50, 50)],
}
STEPS = 3000


def networks(name: str, processors: int) -> list[Network]:
    """Networks on which a selection is measured."""
    if SELECTIONS[name].network != "mesh":
        return [Tree(4, LEVELS[processors])]
    return [Mesh(dims, wraps=True) for dims in DIMS[processors]]


def measure(name: str, network: Network, processors: int, mean_size: int) -> dict[str, object]:
    """Run the steps on one machine."""
    selection, dice = SELECTIONS[name], random.Random(1)
    space = Space(ProcSet.span(0, processors), network)
    held: list[ProcSet] = []
    free, search_s, change_s, changes = processors, 0.0, 0.0, 0
    clock = time.process_time
    begin = clock()
    for step in range(-4 * processors // mean_size, STEPS):
        if step == 0:
            search_s = change_s = 0.0
            changes = 0
        if held and free < 0.15 * processors:
            i = dice.randrange(len(held))
            held[i], held[-1] = held[-1], held[i]
            back = held.pop()
            free += back.count()
            begin = clock()
            space.put(back)
            change_s += clock() - begin
        size = min(free, 1 + int(dice.expovariate(1 / mean_size)))
        begin = clock()
        chosen = selection.select(space, size) if size else None
        middle = clock()
        search_s += middle - begin
        if chosen is not None:
            space.take(chosen)
            change_s += clock() - middle
            held.append(chosen)
            free -= size
            changes += 1
    return {
        "selection": name,
        "network": "x".join(map(str, network.dims)) if isinstance(network, Mesh) else "tree",
        "processors": processors,
        "jobs": len(held),
        "runs of free": len(space.free.intervals),
        "search": round(1e6 * search_s / STEPS, 1),
        "change": round(1e6 * change_s / changes, 1),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    rows = [
        measure(name, network, processors, size)
        for name in SELECTIONS
        for processors, size in (
            (1_000, 20),
            (10_000, 200),
            (10_000, 20),
            (100_000, 2000),
            (100_000, 200),
        )
        for network in networks(name, processors)
    ]
    if as_json:
        print(json.dumps(rows))
        return
    print(" | ".join(rows[0]))
    for row in rows:
        print(" | ".join(map(str, row.values())))


if __name__ == "__main__":
    main()
