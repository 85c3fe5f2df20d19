"""Sums that the aggregator opens: a device that masks, a hospital that cannot read, an aggregator that can."""
