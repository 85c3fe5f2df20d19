"""Exact sums over many clients and ranks, and the bytes that messages would take."""
