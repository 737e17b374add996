"""Results of a simulation: metrics, tables, traces for other tools, pictures."""
