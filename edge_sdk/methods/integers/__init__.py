"""Integers in place of floats: uploads and models as small integers on a scale, around any method that adds up uploads.

May import: contract, algebra, methods.shared.
"""
