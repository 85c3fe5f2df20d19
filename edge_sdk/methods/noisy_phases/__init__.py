"""Noise in what phases around a method add up: statistics of features, counts of settling and of self-training.

May import: contract, algebra, methods.shared, methods.integers, methods.settling, methods.standardising.
"""
