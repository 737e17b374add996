"""Elastic pools of a live service: batch jobs, nodes, and what commands show of them."""
