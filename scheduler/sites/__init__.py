"""Sites: schedulers that a driver supplies with events and whose orders it carries out."""
