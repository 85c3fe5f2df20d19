"""The nodes of a run on a virtual clock, and checkpoints of all of it."""
