"""Sites: what a driver drives by events and orders."""
