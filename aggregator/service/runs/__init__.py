"""Runs from the queue to their end: what was asked for, which can begin, their processes and their metrics."""
