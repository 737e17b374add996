"""Commands about the machine of a service: nodes, advance reservations, pools."""
