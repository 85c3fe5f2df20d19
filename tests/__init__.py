"""The tests. Two of them run at a time on two cores, so none may add up with several threads of its own.

Linear algebra reads these variables when it is loaded, which is after this file. Small products that wait for a second
thread on a busy machine take five times as long.

A shell starts what it puts in the background with SIGINT ignored, and so is everything that this starts in turn. Tests
that end a program as Ctrl-C does would wait for ever.
"""

import os
import signal
import threading

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
