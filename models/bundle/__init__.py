"""From a module to a bundle file: compile, split, pack."""
