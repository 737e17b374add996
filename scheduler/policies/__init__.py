"""Policies: the parts of a scenario. Authors of policies import from `scheduler.policies.api`."""
