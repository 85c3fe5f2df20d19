"""Runs of a method on a fleet, each in a process of its own."""
