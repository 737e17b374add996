"""Commands about elastic pools."""
