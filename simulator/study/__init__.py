"""Studies: grids of simulations with a report."""
