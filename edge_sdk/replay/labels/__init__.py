"""Replays of models that predict sets of labels: which labels, their scores, and how they are shown."""
