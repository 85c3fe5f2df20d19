"""Samples as they come from a sensor: from blocks with times to windows. Pure: no clock, file or thread."""
