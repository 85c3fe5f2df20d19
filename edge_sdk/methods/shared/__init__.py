"""What several methods are built of: drawing, sums, local steps, mixing, reports, evaluation.

May import: contract, algebra.
"""
