"""What an application or a settings file builds: devices and hospitals of all the parts below.

May import: all rooms but replay and tools.
"""
