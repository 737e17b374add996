"""Meshes and tori: their geometry, free nodes, boxes of nodes, and the Hilbert curve."""
