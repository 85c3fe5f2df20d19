"""The processes of a simulation: ranks, their connections, Ray, and memory."""
