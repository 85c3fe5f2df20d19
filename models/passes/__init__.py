"""Rewritings of a graph that keep its values: layout, attention, batch norm, blocked convolutions, schedule."""
