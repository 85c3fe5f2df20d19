"""Points at which tests can make a node die: AUSCULT_FAIL="committed:3" kills it there the third time.

With "committed:3:stop" it stands still there until it is told to go on, so that something else can be killed meanwhile.
The names are the steps of the protocol, in their order. Where the variable is not set, a point costs a comparison.
"""

from __future__ import annotations

import os
import signal

POINTS = {
    "read": "a message was read, nothing is saved",
    "chunk": "a chunk was written into its part",
    "assembled": "all chunks are there and the file has its name, nothing is saved",
    "working": "the role is about to be called",
    "worked": "the role has been called, nothing is saved",
    "file": "the body of an answer is a file, no row names it",
    "saved": "all is written, not committed",
    "committed": "all is committed, nothing has left",
    "published": "messages have left, acknowledgements have not",
    "acknowledged": "acknowledgements have left",
    "heard": "an acknowledgement was read, the message is not deleted",
    "told": "the application was told, the store does not know it",
}

_point, _count, _what = (os.environ.get("AUSCULT_FAIL", "") + "::").split(":")[:3]
_left = int(_count or 1)


def reach(point: str) -> None:
    """Die or stop here, if it was asked for."""
    global _left
    if point == _point:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGSTOP if _what == "stop" else signal.SIGKILL)
