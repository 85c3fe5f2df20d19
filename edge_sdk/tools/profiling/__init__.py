"""The cost of a training step on this machine, measured in processes whose memory is watched."""
