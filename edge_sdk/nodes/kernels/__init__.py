"""Families of kernels: what nodes make of their bundle and data, so that a method finds it in its env.

A method names its family (`Method.kernels`). Devices, hospitals, the aggregator and a replay call the family and never
ask which method it is, so a new method of a family that exists is one module in `methods/`.

A new family is a module here that ends in a `Family`, and its line in `table.py`. Its three `for_*` functions return
fields of the env that its methods declare, by name.
"""
