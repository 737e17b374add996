"""How `small.swf` was made: 400 synthetic jobs with some of everything that is odd.

python tests/support/make_small_trace.py > tests/support/small.swf
"""

from __future__ import annotations

import random


def main() -> None:
    dice = random.Random(20240501)
    print("; Version: 2.2\n; Computer: none, drawn at random\n; MaxProcs: 64")
    at = 0
    for number in range(1, 401):
        at += int(dice.expovariate(1 / 260)) if dice.random() < 0.8 else 0
        size = min(80, 2 ** dice.randint(0, 6) + dice.choice([0, 0, 1]))
        asked = dice.choice([300, 900, 3600, 7200, 14400])
        run = max(1, int(asked * dice.random() ** 2 * dice.choice([1, 1, 1, 1.2])))
        run = dice.choice([-1, 0]) if dice.random() < 0.02 else run
        asked = -1 if dice.random() < 0.03 else asked
        requested = -1 if dice.random() < 0.05 else size
        user = dice.randint(1, 12)
        print(f"{number} {at} -1 {run} {size} -1 -1 {requested} {asked} -1 1 {user}" + " -1" * 6)


if __name__ == "__main__":
    main()
