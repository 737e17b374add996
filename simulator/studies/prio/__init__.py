"""Study of PRIO: priority-enabled scheduling of resizable jobs."""
