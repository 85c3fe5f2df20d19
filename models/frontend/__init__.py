"""The way from a torch module to its forward graph."""
