"""Convolutions, and the norms and biases beside them, in forms that cost less."""
