"""The loop of a live node, and who is here: presence, neighbours, membership of a run.

May import: delivery, wire, contract.
"""
