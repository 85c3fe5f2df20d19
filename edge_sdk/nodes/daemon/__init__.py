"""Devices and hospitals as services: started from settings files, watched, and asked for their counters."""
