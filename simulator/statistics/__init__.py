"""Statistics of a schedule: variables of jobs and of the machine, and estimators over them."""
