"""Vectors as integers: settings, rotation and rounding, noise and what it costs, uploads and the reference."""
