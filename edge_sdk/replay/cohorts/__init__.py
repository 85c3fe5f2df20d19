"""Who takes part in a replay and what each of them holds: a folder of traces or samples, or a data set dealt out.

A node reads only its own part: its trace, or a file of its own with its samples.
"""
