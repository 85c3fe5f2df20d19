"""A workstation's tools: replays of traces and data sets through real nodes, data sets, reports, generated traces.

May import: nodes, model, data, wire.options, contract. No other room imports this one, and a device never loads it.
"""
