"""Copies between local arrays and messages: regions, kernels, buffers."""
