"""Data, which never leave their holder: samples, a hospital's patients, public inputs, traces they are read from.

May import: atomic, errors.
"""
