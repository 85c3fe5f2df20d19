"""Exactly once: one run on one disk, and the transaction that every message goes through.

May import: contract, wire.frames, wire.topics.
"""
