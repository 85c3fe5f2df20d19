"""The checks of the doctor: this machine, a node's files, its keys and its broker."""
