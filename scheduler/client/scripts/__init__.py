"""Job scripts: their options, those of Slurm among them, and the command that submits them."""
