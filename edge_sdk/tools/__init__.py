"""An operator's tools: doctor, certificates, the cost of a step, what a bundle holds.

May import: model, wire.mqtt, contract.
"""
