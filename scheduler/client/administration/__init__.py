"""Commands for operators: nodes, pools, advance reservations, keys, the journal."""
