"""Robust sums: a rule in place of the plain sum of what children send, around any method that adds up uploads.

May import: contract, algebra, methods.shared.
"""
