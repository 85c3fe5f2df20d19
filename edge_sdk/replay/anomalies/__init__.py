"""Replays of models that reconstruct windows: what is abnormal, scores, neighbours, and how they are shown."""
