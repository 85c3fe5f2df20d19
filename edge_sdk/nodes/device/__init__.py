"""A device: its samples, what it trains and when, and its part in the runs of its hospital."""
