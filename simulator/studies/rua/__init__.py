"""Selections for shared nodes and RUA-Backfilling: GUIM chapter 7, its tables and figures."""
