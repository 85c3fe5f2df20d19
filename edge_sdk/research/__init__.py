"""What a notebook asks for: a fleet from arrays, a simulation of it, its models, comparisons. Front door: `edge_sdk`.

Each run is `auscult simulate` in a process of its own, so the figures are those of that command, to the bit.
"""
