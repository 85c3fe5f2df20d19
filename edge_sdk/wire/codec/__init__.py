"""Messages and records as bytes and back, checked against the types that a method declares. Pure.

May import: contract, algebra.
"""
