"""Simulations: whole runs of up to a million clients on one workstation or several.

The roles are those of a replay, on a virtual clock, without broker, a process for each device, or codec in between.
"""
