"""Scores of devices and models, from confusion matrices, and their statistics over devices."""
