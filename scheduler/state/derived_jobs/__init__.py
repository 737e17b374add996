"""Jobs that come from other jobs: tasks of arrays, and steps of job scripts."""
