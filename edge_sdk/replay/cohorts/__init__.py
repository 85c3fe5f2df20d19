"""Who takes part in a replay and what each of them holds: a folder of traces, or a data set that is dealt out.

A node reads only its own part: its trace, or a file of its own with the samples that are its share.
"""
