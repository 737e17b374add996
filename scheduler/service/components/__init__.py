"""Components of the service, named as in PRIO section 2."""
