"""Elastic pools: nodes that a batch system grants for a limited time when the queue needs them."""
