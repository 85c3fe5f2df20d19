"""The aggregator as a service: many runs after and beside each other, a console, a REST API, a command line.

It trains nothing itself: each run is a process `auscult aggregator FILE` in a directory of its own, and what the
service knows of a run it reads from there. So whatever happens to the service, a run is as safe as one that was started
by hand.
"""
