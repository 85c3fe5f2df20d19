"""Traces to replay where nobody has recorded any: generated ones, and a published data set written as traces."""
