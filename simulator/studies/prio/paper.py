"""Results of PRIO section 4: its tables, and the percentages that its text gives for its figures.

Seconds and per cent. Tables and text differ in places (PBA-PR's mean is 572.2 in table 1 and 575.2
in table 3); each value is kept as printed.
"""

from __future__ import annotations

#: Scenarios in the paper's order: our name -> the paper's.
NAMES = {"static": "Static", "fcfs-pr": "FCFS-PR", "max-b-pr": "Max-B-PR", "pba-pr": "PBA-PR"}

#: Table 1: utilisation, mean completion and its improvement, mean execution and its improvement.
TABLE_1 = {
    "static": (83.6, 647.6, None, 141.7, None),
    "fcfs-pr": (87.0, 546.7, 15.6, 138.8, 2.1),
    "max-b-pr": (93.7, 605.9, 6.4, 128.6, 9.3),
    "pba-pr": (92.0, 572.2, 11.2, 131.5, 7.2),
}
#: Table 2: queue wait over the runs: average, standard deviation, largest, smallest, range.
TABLE_2 = {
    "static": (529.3, 177.7, 675.27, 240.1, 435.2),
    "fcfs-pr": (421.5, 114.0, 548.17, 235.0, 313.2),
    "max-b-pr": (483.9, 133.0, 600.26, 243.4, 356.9),
    "pba-pr": (459.8, 133.0, 603.94, 233.2, 370.8),
}
#: Table 3: mean completion of each of the seven runs.
TABLE_3 = {
    "static": (783.2, 475.0, 752.2, 604.7, 774.1, 381.8, 762.4),
    "fcfs-pr": (657.8, 423.9, 600.8, 529.8, 631.0, 375.2, 608.6),
    "max-b-pr": (731.0, 500.1, 710.3, 571.2, 660.4, 370.5, 697.7),
    "pba-pr": (675.4, 469.2, 632.0, 527.4, 645.4, 356.0, 721.0),
}
#: Table 4: as table 2, by percentage of resizable jobs under PBA-PR; 0 is static.
TABLE_4 = {
    0: (521.06, 81.5, 601.93, 410.29, 191.64),
    25: (478.43, 103.6, 570.53, 320.33, 250.2),
    50: (451.7, 82.88, 551.39, 325.32, 226.07),
    75: (421.71, 74.06, 513.45, 313.04, 200.41),
    100: (412.53, 77.83, 479.83, 300.7, 179.13),
}
#: Table 5: mean completion of all, gold and platinum jobs.
TABLE_5 = {
    "static": (639.5, 645.7, 633.2),
    "static with priority": (581.4, 968.6, 194.2),
    "pba-pr": (571.2, 565.1, 577.3),
    "pba-pr with priority": (535.8, 884.2, 187.5),
}
#: Improvement of the mean wait over static (figure 5).
WAIT_IMPROVEMENT = {"fcfs-pr": 20.3, "max-b-pr": 8.6, "pba-pr": 13.13}
#: Improvement of the mean wait over static, small, medium and large jobs (figure 7).
WAIT_BY_SIZE = {
    "fcfs-pr": (61.9, 6.0, 9.5),
    "max-b-pr": (11.9, 7.0, 7.0),
    "pba-pr": (34.01, 6.3, 7.9),
}
#: The same of the mean execution time (figure 8).
EXECUTION_BY_SIZE = {
    "fcfs-pr": (1.9, 2.0, 2.5),
    "max-b-pr": (16.45, 9.2, 7.5),
    "pba-pr": (10.4, 6.8, 6.7),
}
#: Improvement of the mean completion by percentage of resizable jobs (figure 9).
COMPLETION_BY_SHARE = {25: 5.5, 50: 10.6, 75: 14.6, 100: 16.56}
#: Utilisation by the same (figure 10); 0 is static.
UTILIZATION_BY_SHARE = {0: 83.0, 25: 85.4, 50: 87.1, 75: 89.5, 100: 91.4}
#: Improvement of small jobs at 100 % (figure 11); the text gives no number for the others.
SMALL_AT_100 = 37.0
#: Improvement of gold and platinum jobs under PBA-PR with priorities (figure 12).
BY_CLASS = {"gold": 8.0, "platinum": 3.5}
#: Improvement of gold jobs' wait and execution, small, medium and large (figures 13 and 14).
GOLD_WAIT = (43.1, 5.6, 6.5)
GOLD_EXECUTION = (5.5, 5.0, 6.0)
#: Improvement of large and medium jobs at 100 % resizable jobs over that at 25 %, points (4.3).
LARGE_FROM_25, MEDIUM_FROM_25 = 5.2, 3.7
#: Improvement of platinum jobs over static without priority (text on table 5).
PLATINUM_OVER_STATIC = {"pba-pr with priority": 70.4, "static with priority": 69.3}
#: The same of gold jobs under PBA-PR, minus that under static with priority, points.
GOLD_MORE_THAN_STATIC = 13.0
