"""Several centres: dispatchers, the assignment of jobs to centres, and the answers of centres."""
