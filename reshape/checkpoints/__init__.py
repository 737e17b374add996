"""Checkpoints of an application: all registered data in files, for any later configuration."""
