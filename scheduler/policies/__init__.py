"""Policies: which job, when, on how many processors. One small file each; see `interface`."""
