"""Attention, norms and products of matrices in forms that a runtime is quick at, layouts carried along as views."""
