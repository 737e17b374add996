"""The demonstration of several sites: one workload, sent to the best of several services."""
