"""Standardising: statistics of the fleet's features, added up before the first round of a method.

May import: contract, algebra, methods.shared.
"""
