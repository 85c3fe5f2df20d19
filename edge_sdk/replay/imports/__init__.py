"""Recordings of other people's formats made traces: each kind of file has a module, and importing.py is their door."""
