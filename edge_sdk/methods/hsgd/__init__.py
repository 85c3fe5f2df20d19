"""HSGD: features split between device and hospital (Yu et al.).

May import: contract, algebra, methods.shared.
"""
