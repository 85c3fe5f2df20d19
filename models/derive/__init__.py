"""Reverse mode on the graph, and the graphs that a bundle holds."""
