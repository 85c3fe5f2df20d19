"""The plan of a replay before anything starts: run, options of the data, bundles, recommendations, what was begun."""
