"""A node's folder in one file, made while the node runs or not, and put back from there."""
