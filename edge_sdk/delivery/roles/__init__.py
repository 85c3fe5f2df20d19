"""The role of a node at work: its calls, its events, and the children that take part."""
