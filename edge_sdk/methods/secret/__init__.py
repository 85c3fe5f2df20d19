"""Secret sums: a hospital adds up what its devices send without being able to read it.

May import: contract, algebra, methods.integers, methods.settling, methods.shared,
    methods.standardising.
"""
