"""Local training of devices: its one loop, a part of the model only, and meta-learning."""
