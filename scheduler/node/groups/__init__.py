"""The groups of jobs on a node: their processes, files and ends."""
