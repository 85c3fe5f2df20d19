"""Replays of models that predict values: which columns, their errors, their neighbours, and how they are shown."""
