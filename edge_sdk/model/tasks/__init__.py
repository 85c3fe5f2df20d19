"""Tasks of a bundle: what its outputs are, how a label becomes a target, and how predictions are made of outputs."""
