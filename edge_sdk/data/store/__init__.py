"""A device's own windows on its disk: bounded, labelled late, erased on request, exact after a kill."""
