"""Settling: each device makes its personal model from the final model of any method with a global one.

May import: contract, algebra, methods.shared.
"""
