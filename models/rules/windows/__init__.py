"""Operators that go over positions or steps: convolution, pooling, recurrence, and what is native of them."""
