"""Large bodies on their way in, in chunks: what has come of each, and what is to be reported about it.

Chunks may come in any order and more than once. What they carry is checked before it is written, and what was written
is checked again after a restart, so that a report never promises a chunk that is not there.

What one peer may have here at a time is bounded in number and in bytes, on the disk too: what its sender is done with,
or begins anew in another size, is deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from edge_sdk.delivery.storage.files import Files, PartialBody
from edge_sdk.wire.frames import MOST_CHUNKS, Chunk, ChunkReport, Offer

BODIES = 64  # that one peer may have under way
BYTES = 2**30  # of these together; a single body may be larger

Key = tuple[str, int, int]  # sender, epoch, seq


class IncomingTransfers:
    """All bodies that are arriving in chunks.

    Attributes:
        parts: body -> what there is of it.
        reports: body -> nonce of the offer that is to be answered, or 0 where a chunk asked for a report.
    """

    def __init__(self, files: Files):
        self.files = files
        self.parts: dict[Key, PartialBody] = {}
        self.reports: dict[Key, int] = {}

    def find_partial(self, f: Chunk | Offer) -> PartialBody | None:
        """Find what there is of a body; None: the peer has too many under way, or cuts it into too many chunks."""
        if f.size > MOST_CHUNKS * f.chunk:
            return None
        key = f.src, f.epoch, f.seq
        found = self.parts.get(key)
        if found is not None and (found.size, found.chunk) == (f.size, f.chunk):
            return found
        if found is not None:
            self.parts.pop(key).discard()
        self.discard_below(f.src, f.epoch, f.lo)
        others = [part.size for (src, _, _), part in self.parts.items() if src == f.src]
        if others and (len(others) >= BODIES or sum(others) + f.size > BYTES):
            return None
        self.parts[key] = self.files.open_partial(f"{f.src}.{f.epoch}.{f.seq}", f.size, f.chunk)
        return self.parts[key]

    def discard_below(self, src: str, epoch: int, lo: int) -> None:
        """Delete what a sender has given up, or knows to be here: below `lo` it is done with everything."""
        for key in [k for k in self.parts if k[0] == src and k[1] == epoch and k[2] < lo]:
            self.parts.pop(key).discard()

    def sweep(self, wanted: Callable[[str, int, int], bool]) -> None:
        """Delete what an earlier process has left of bodies that will not come any more, and what is too many."""
        kept = Counter[str]()
        for (src, epoch, seq), path in reversed(self.files.list_partials()):
            kept[src] += 1
            if not wanted(src, epoch, seq) or kept[src] > BODIES:
                path.unlink(missing_ok=True)

    def take_piece(self, f: Chunk | Offer) -> tuple[str, str | None]:
        """Take in a chunk or an offer.

        Returns:
            What it was ("new", "duplicate", "broken", "offer" or "crowded"), and the name of the body's file if the
            body is complete now.
        """
        part = self.find_partial(f)
        if part is None:
            return "crowded", None
        verdict = part.put_chunk(f.index, f.body, f.crc) if isinstance(f, Chunk) else "offer"
        key = f.src, f.epoch, f.seq
        if part.complete:
            del self.parts[key]
            self.reports.pop(key, None)
            if part.finish_body(f.digest):
                return verdict, part.name
            self.reports[key] = 0  # the sender hears that nothing of it is here, and sends it once more
            return "broken", None
        if isinstance(f, Offer):
            self.reports[key] = f.nonce
        elif f.report:
            self.reports.setdefault(key, 0)
        return verdict, None

    def take_reports(self) -> list[tuple[str, ChunkReport]]:
        """Take out the reports that are due, each with its receiver."""
        found = []
        for key, nonce in self.reports.items():
            part = self.parts.get(key)
            bitmap = b"" if part is None else part.have.to_bytes(-(-part.count // 8), "little")
            found.append((key[0], ChunkReport(*key, bitmap, nonce)))
        self.reports = {}
        return found

    def forget_disk(self, src: str, epoch: int) -> None:
        """Delete what a peer had begun to send from another disk than its present one, `epoch`."""
        for key in [k for k in self.parts if k[0] == src and k[1] != epoch]:
            self.parts.pop(key).discard()
