"""A node: its agent, the groups of jobs on it, and the batch system that grants it."""
