"""Families of kernels: what nodes make of their bundle and data, so that a method finds it in its env."""
