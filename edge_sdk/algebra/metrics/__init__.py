"""Metrics of predictions as sums that add up over samples, devices and hospitals."""
