"""Numbers in flat vectors: layouts of parameters, proximal operators, low rank, optimisers, metrics of classification.

May import: numpy only: no file, clock, thread or network.
"""
