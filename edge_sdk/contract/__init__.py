"""What a method and a node are: roles, rounds, debts, the run, and a network in memory. Pure.

May import: algebra.
"""
