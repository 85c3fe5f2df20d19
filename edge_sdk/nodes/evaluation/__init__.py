"""Judgement of a device's models when a run is over, and of what the device would have reached alone."""
