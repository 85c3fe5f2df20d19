"""A day of faults in some minutes: the three services under kills, full disks, bad peers and clocks that are set."""
