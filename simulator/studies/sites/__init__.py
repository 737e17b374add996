"""Several centres: chapter 8 of GUIM, and Grid-Backfilling of its chapter 9."""
