"""From a settings file, and from a run, to the parts of which a node is made."""
