"""Recorded sensor streams: read, cut into windows, and split by recording."""
