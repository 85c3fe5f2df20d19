"""The one loop of a node, its lanes, and what it says of itself in its log and to a console."""
