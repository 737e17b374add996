"""Simulations of machines whose nodes are granted by a batch system, by elastic pools."""
