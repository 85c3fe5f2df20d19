"""Whole runs of up to a million clients on one workstation or several: the roles of a replay on a virtual clock, without
broker, processes of single devices, codec or disk in between."""
