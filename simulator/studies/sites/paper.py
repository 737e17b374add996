"""Numbers of GUIM, chapter 8, and the centres of its scenarios."""

from __future__ import annotations

from typing import Final

from scheduler.policies.scenarios import scenario
from simulator.many_centres.centres_file import CentreDescription

#: Table 8.1: (centre, scenario) -> mean, standard deviation and 95th percentile of the bounded
#: slowdown, of the slowdown and of the wait (s), with the centres separate.
TABLE_8_1: Final = {
    ("SDSC", "ALL-SJBF"): (8.66, 47.7, 17.1, 12.9, 86.07, 18.92, 2471, 8412, 18101),
    ("SDSC-Blue", "ALL-SJBF"): (6.8, 29, 28.5, 7.6, 36, 29, 1331, 5207.2, 8777),
    ("CTC", "ALL-SJBF"): (2.8, 23, 2.3, 3.03, 27.1, 2.5, 1182, 4307.3, 6223),
    ("CTC", "CTC/4"): (19.8, 57.23, 114.3, 20.467, 58.203, 116.3, 9664, 20216, 54450),
    ("CTC", "CTC-FCFS"): (12.833, 66.54, 32.403, 14.04, 77.03, 32.65, 3183.3, 9585, 32996.4),
}
#: Table 8.2: centre -> ratio of the separate centres to Less-WaitTime in ALL-SJBF, of the mean
#: bounded slowdown, the mean slowdown and the mean wait.
TABLE_8_2: Final = {
    "SDSC": (5.44, 7.5, 10.98),
    "SDSC-Blue": (4.2, 4.4, 5.9),
    "CTC": (1.8, 1.7, 5.2),
}
#: Table 8.3: policy -> jobs by centre. They add up to 22 291 and 22 291 jobs.
TABLE_8_3: Final = {
    "less-jobsinqueue": {"CTC": 10788, "SDSC": 1953, "SDSC-Blue": 9550},
    "less-workleft": {"CTC": 10912, "SDSC": 2560, "SDSC-Blue": 8819},
}
#: Table 8.5: scenario -> (policy, variable) whose errors of prediction ours are set against -> 95th
#: percentile, median and interquartile range of the errors, in percent.
TABLE_8_5: Final = {
    "Scenario-1": {
        ("less-waittime", "wait_s"): (98.04, 12.34, 52.79),
        ("less-waittime-pred", "wait_s"): (117.76, 18.56, 262.70),
        ("less-waittime-pred", "run_s"): (3020.0, 11.81, 145.47),
        ("less-slowdown", "slowdown"): (9145.9, 121.22, 130.52),
    },
    "Scenario-2": {
        ("less-waittime", "wait_s"): (927.63, 97.20, 255.31),
        ("less-waittime-pred", "wait_s"): (1173.76, 51.56, 262.70),
        ("less-waittime-pred", "run_s"): (4685.0, 88.33, 796.44),
        ("less-slowdown", "slowdown"): (8941.53, 100.0, 144.38),
    },
}
_SIZES: Final = {"CTC": 412, "SDSC": 128, "SDSC-Blue": 1152}
#: Table 8.6: centre -> allocation units per hour, cost of a unit (euros). Its power column
#: contradicts itself; these two columns are taken as they are.
_PRICES: Final = {"CTC": (420.0, 1.12), "SDSC": (100.0, 0.5), "SDSC-Blue": (900.0, 2.0)}
#: Scenario -> centre -> (CPU factor, rules): sections 8.5.2 and 8.6.7.
SCENARIOS: Final = {
    "ALL-SJBF": {"CTC": (1.0, "sjbf"), "SDSC": (1.0, "sjbf"), "SDSC-Blue": (1.0, "sjbf")},
    "CTC/4": {"CTC": (4.0, "sjbf"), "SDSC": (1.0, "sjbf"), "SDSC-Blue": (1.0, "sjbf")},
    "CTC-FCFS": {"CTC": (1.0, "fcfs"), "SDSC": (1.0, "sjbf"), "SDSC-Blue": (1.0, "sjbf")},
    "Scenario-1": {"CTC": (1.5, "sjbf"), "SDSC": (0.5, "sjbf"), "SDSC-Blue": (2.0, "sjbf")},
    "Scenario-2": {"CTC": (1.5, "fcfs"), "SDSC": (0.5, "easy"), "SDSC-Blue": (2.0, "sjbf")},
}
_RULES: Final = {
    "sjbf": scenario("easy", {"backfill_order": "sjf"}),
    "easy": scenario("easy"),
    "fcfs": scenario("fcfs"),
}


def centres(name: str) -> list[CentreDescription]:
    """Centres of a scenario.

    Raises
    ------
    KeyError : there is no such scenario.
    """
    return [
        CentreDescription(centre, _SIZES[centre], _RULES[rules], factor, *_PRICES[centre])
        for centre, (factor, rules) in SCENARIOS[name].items()
    ]
