"""Keys and keystreams of secret sums, and which node of a run is given which of them."""
