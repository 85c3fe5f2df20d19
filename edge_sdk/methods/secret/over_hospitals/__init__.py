"""Sums over hospitals, of which the aggregator reads no single hospital's."""
