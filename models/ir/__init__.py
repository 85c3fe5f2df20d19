"""The graph that everything else works on: nodes, values, layouts, losses, and the reference in numpy."""
