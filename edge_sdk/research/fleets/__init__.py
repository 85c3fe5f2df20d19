"""Devices and their data from what people have, and the model that they are to train."""
