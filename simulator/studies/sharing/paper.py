"""The numbers of tables 6.1 to 6.4 of GUIM."""

from __future__ import annotations

from typing import Final

#: (centre, mix, selection) -> 95th percentile of the bounded slowdown, of the wait (s), mean
#: percentage of penalised run time, killed jobs. Tables 6.1 (mix "none") and 6.3.
P95: Final = {
    ("CTC", "none", "FF"): (1.9, 1390, 0.0, 30),
    ("CTC", "none", "FC"): (1.7, 3890, 0.0, 30),
    ("SDSC", "none", "FF"): (32, 31008, 0.0, 2),
    ("SDSC", "none", "FC"): (64, 44301, 0.0, 2),
    ("CTC", "high", "FF"): (4.2, 10286, 8.8, 428),
    ("CTC", "med", "FF"): (2.8, 8963, 4.8, 247),
    ("CTC", "low", "FF"): (2.2, 4898, 0.92, 64),
    ("CTC", "high", "FC"): (3.5, 4527, 11.1, 527),
    ("CTC", "med", "FC"): (3.1, 3755, 6.17, 333),
    ("CTC", "low", "FC"): (2.1, 2679, 1.2, 80),
    ("SDSC", "high", "FF"): (99.3, 55667, 11.8, 475),
    ("SDSC", "med", "FF"): (55.4, 44346, 6.7, 255),
    ("SDSC", "low", "FF"): (37.7, 32730, 1.5, 51),
    ("SDSC", "high", "FC"): (197, 96803, 13.8, 548),
    ("SDSC", "med", "FC"): (149, 62883, 7.5, 307),
    ("SDSC", "low", "FC"): (85.9, 44940, 1.4, 66),
}
#: The same with means in place of percentiles: tables 6.2 and 6.4. For SDSC with sharing, table 6.4
#: repeats the waits of 6.3, and for FC the slowdowns as well.
MEAN: Final = {
    ("CTC", "none", "FF"): (2.6, 2860, 0.0, 30),
    ("CTC", "none", "FC"): (2.1, 5530, 0.0, 30),
    ("SDSC", "none", "FF"): (4.2, 2968, 0.0, 2),
    ("SDSC", "none", "FC"): (15.4, 6351, 0.0, 2),
    ("CTC", "high", "FF"): (8.2, 20082, 7.8, 428),
    ("CTC", "med", "FF"): (5.3, 13443, 3.8, 247),
    ("CTC", "low", "FF"): (3.2, 7124, 0.72, 64),
    ("CTC", "high", "FC"): (7.1, 8732, 9.01, 527),
    ("CTC", "med", "FC"): (4.02, 5152, 7.71, 333),
    ("CTC", "low", "FC"): (2.59, 3490, 1.41, 80),
    ("SDSC", "high", "FF"): (22.56, 55667, 15.1, 475),
    ("SDSC", "med", "FF"): (11.32, 44346, 10.2, 255),
    ("SDSC", "low", "FF"): (7.54, 32730, 5.2, 51),
    ("SDSC", "high", "FC"): (197, 96803, 12.72, 548),
    ("SDSC", "med", "FC"): (149, 62883, 5.452, 307),
    ("SDSC", "low", "FC"): (85.9, 44940, 1.24, 66),
}
