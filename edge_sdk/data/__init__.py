"""What never leaves its holder: samples, a hospital's patients, public inputs, and the traces they are read from.

May import: errors only.
"""
