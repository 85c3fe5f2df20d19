"""Every byte that crosses: frames, topics, MQTT, links and their options.

May import: contract, algebra.
"""
