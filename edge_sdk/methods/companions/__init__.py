"""Devices of other architectures beside a method with one global model.

May import: contract, algebra, methods.shared, fedal, fedslr.
"""
