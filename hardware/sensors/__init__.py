"""Sensors: one small protocol, and what speaks it. Each kind is a module; what it needs beside Python is an extra."""
