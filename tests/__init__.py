"""The tests. Two of them run at a time on two cores, so none may add up with several threads of its own.

Linear algebra reads these variables when it is loaded, which is after this file. Small products that wait for a second
thread on a busy machine take five times as long.
"""

import os

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
