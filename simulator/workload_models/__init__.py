"""Workload models: generators of jobs, each with a source, parameters and a seed."""
