"""The registry of models, which of them is in use, and rollouts that bring them to devices."""
