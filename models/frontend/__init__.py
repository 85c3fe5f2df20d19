"""From a torch module to the forward graph."""
