"""A bundle (a compiled model) at work: read, checked, and run by onnxruntime.

May import: algebra.
"""
