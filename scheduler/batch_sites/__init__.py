"""Sites that stand for a batch system: the requests of the commands, answered without a service."""
