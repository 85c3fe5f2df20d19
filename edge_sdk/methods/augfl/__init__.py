"""AugFL: inexact ADMM meta-learning with a private pretrained model.

May import: contract, algebra, methods.shared.
"""
