"""Whole simulations, from the command line to the result."""
