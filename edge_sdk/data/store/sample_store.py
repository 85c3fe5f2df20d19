"""A device's windows on its disk, for years: the pool that it trains on, and what nobody has labelled yet.

* **Bounded.** Half of the bytes are for windows with a label, half for those without. Where there are too many without,
  the oldest go. Where there are too many with one, windows of the class that has most go, so that rare classes survive;
  which of them is drawn once for each window (its rank, a keyed hash), and the highest ranks go first. What stays of a
  class is thereby a uniform sample of all that it has had since it last was the largest: bottom-k sampling (Cohen and
  Kaplan, "Summarizing data using bottom-k sketches", PODC 2007), with the balance between classes of CBRS
  (Chrysakis and Moens, "Online continual learning from imbalanced data", ICML 2020).
* **Held out for ever.** A keyed hash of a recording says once whether its windows are trained on or judged by (of the
  first two, one is for each; see parts.py). The key is drawn when the store is made.
* **Exact.** What `add`, `label` or `forget` have returned from is on the disk; a kill undoes at most what they were at.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from hashlib import blake2b
from math import inf
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_sdk.atomic import make_private_directory
from edge_sdk.data.live.windower import LiveWindows
from edge_sdk.data.recording import StoreLimits
from edge_sdk.data.store.cipher import Cipher, DamagedWindow, PlainWindows
from edge_sdk.data.store.facts import settle_facts
from edge_sdk.data.store.index import StoreUnusable, open_index, saying_unusable
from edge_sdk.data.store.parts import HeldOut
from edge_sdk.data.store.taken_times import TakenTimes
from edge_sdk.data.store.timeline import LabelledSpan, Timeline, check_words
from edge_sdk.data.store.trusted_time import DAY, trust

ROW_BYTES = 160
"""What a row takes beside the window itself, in its page and in two indices."""
FILLING = 0.8
"""Share of the bytes that rows may take: pages are not full, and the log beside the database takes some."""
FIXED_BYTES = 1 << 20
BATCH = 256
"""Windows in one transaction."""
LABELS_GIVEN = "labels_given"
"""Fact: how many windows were given a label so far, also those that are deleted by now."""
ABOUT = struct.Struct("<qd")

log = logging.getLogger("auscult.samples")


@dataclass(frozen=True, eq=False)
class StoredWindows:
    """What a store knows of some windows, in the order of their times.

    Attributes:
        ids, began, ended, recording: of each (N,).
        labels: N names; None of a window without one.
        held: bool (N,), which are for judging.
    """

    ids: npt.NDArray[np.int64]
    began: npt.NDArray[np.float64]
    ended: npt.NDArray[np.float64]
    recording: npt.NDArray[np.int64]
    labels: tuple[str, ...]
    held: npt.NDArray[np.bool_]

    def take(self, rows: slice | npt.NDArray[np.intp]) -> StoredWindows:
        labels = np.array(self.labels, object)[rows]
        others = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "labels"}
        return StoredWindows(**others, labels=tuple(labels))


class SampleStore:
    """A sample store in a directory. May be used from several threads.

    Args:
        directory: of the store alone; it is made where there is none.
        shape: of one window, (channels, window).
        cipher: how windows are written; see cipher.py.
        signal: of which windows are cut, in words: channels, units, rate, stride; "": nobody says.

    Raises:
        UsageError: the directory has a store of other windows, of another held-out share, or under another key.
    """

    def __init__(
        self,
        directory: Path,
        shape: tuple[int, int],
        limits: StoreLimits | None = None,
        cipher: Cipher | None = None,
        signal: str = "",
    ) -> None:
        self.path, self.shape = directory / "samples.db", shape
        self.limits, self.cipher = limits or StoreLimits(), cipher or PlainWindows()
        self.lock = threading.Lock()
        with saying_unusable(self.path, "the store of samples cannot be opened"):
            make_private_directory(directory)
            self.index = open_index(self.path)
        with saying_unusable(self.path, "the store of samples cannot be opened"), self.index:
            self.salt = settle_facts(self.index, shape, signal, self.cipher, self.limits.held_out)
        self.load()
        self.taken = TakenTimes(self.find_ids, self.index.latest(), shape[-1])
        room = FILLING * (self.limits.megabytes * 1e6 - FIXED_BYTES) / (4 * shape[0] * shape[1] + ROW_BYTES)
        self.most = max(1, int(room / 2))  # with a label, and as many without

    def load(self) -> None:
        """Read from the disk what is kept in memory of it."""
        self.timeline = Timeline(LabelledSpan(*row) for row in self.index.load_spans())
        self.counts, self.next_id = self.index.count_labels(), self.index.next_id()
        self.longest = self.index.longest()
        self.held_out = HeldOut(self.index, self.limits.held_out, lambda purpose, number: self.hash(purpose, number))
        self.labels_given = self.index.count_on(LABELS_GIVEN, 0)

    def find_ids(self, began: float, ended: float) -> list[int]:
        """Windows with a moment in this stretch of time, within a transaction."""
        return [row[0] for row in self.index.overlapping(began, ended, self.longest)]

    @contextmanager
    def changing(self) -> Iterator[None]:
        """A transaction: after an exception, disk and memory are as they were before.

        Raises:
            StoreUnusable: the disk does not take it.
        """
        with self.lock:
            try:
                with saying_unusable(self.path, "cannot be changed"), self.index:
                    if self.index.changed_by_others():
                        self.load()
                    yield
            except BaseException:
                self.load()
                raise

    # -- taking in

    def add(self, windows: LiveWindows, now: float | None = None) -> int:
        """Save windows; those of a time of which something was said already have a label at once. Windows of a time of
        which there are older ones are left out (taken_times.py). Returns how many are saved.

        Args:
            now: seconds since 1970. Windows are too old by this, or by the new windows' times if these are earlier: a
                recording that is played back must not be deleted as soon as it is saved, nor all there is by one
                window of a clock that was wrong; and a leap of this time is believed a day later (trusted_time.py).
                None: by the new windows' times.
        """
        saved = 0
        for run in self.taken.runs(windows):
            self.taken.begin(windows, run.start, self.next_id)
            for first in range(run.start, run.stop, BATCH):
                saved += self.add_some(windows, range(first, min(first + BATCH, run.stop)), now)
        return saved

    def add_some(self, windows: LiveWindows, which: range, now: float | None) -> int:
        """Save some of the windows in one transaction."""
        with self.changing():
            self.longest = max(self.longest, float((windows.ended - windows.began).max()))
            rows = [self.make_row(windows, at) for at in which if self.taken.are_free(windows, at)]
            self.index.add(rows)
            self.labels_given = self.index.count_on(LABELS_GIVEN, sum(row[6] is not None for row in rows))
            for row in rows:
                self.counts[row[6]] = self.counts.get(row[6], 0) + 1
            newest = float(windows.ended[list(which)].max())
            self.make_room(trust(self.index, newest if now is None else min(newest, now), self.limits.days))
        return len(rows)

    def make_row(self, windows: LiveWindows, at: int) -> tuple[int, float, float, int, int, int, str | None, bytes]:
        """The row of one new window."""
        id, self.next_id = self.next_id, self.next_id + 1
        began, ended = float(windows.began[at]), float(windows.ended[at])
        recording = int(windows.recording[at])
        x = self.cipher.seal(windows.x[at].astype("<f4").tobytes(), ABOUT.pack(id, began))
        held = self.held_out.decide(recording)
        label = self.timeline.find(began, ended)
        return id, began, ended, recording, int(held), self.hash(b"rank", id), label, x

    def hash(self, purpose: bytes, number: int) -> int:
        """A number from 0 to below 2^63, the same for ever in this store."""
        made = blake2b(number.to_bytes(8, "little", signed=True), digest_size=8, key=self.salt, person=purpose)
        return int.from_bytes(made.digest(), "little") >> 1

    def make_room(self, now: float) -> None:
        """Delete what is too old or too much, within the transaction."""
        oldest = now - self.limits.days * DAY
        self.delete(self.index.ended_before(oldest))
        self.timeline.forget_before(oldest)
        spare = self.counts.get(None, 0) - self.most
        if spare > 0:
            self.delete([(id, None) for id in self.index.oldest_unlabelled(spare)])
        while (spare := sum(n for label, n in self.counts.items() if label is not None) - self.most) > 0:
            sizes = sorted((n for label, n in self.counts.items() if label is not None), reverse=True)
            label = max((n, label) for label, n in self.counts.items() if label is not None)[1]
            step = sizes[0] - sizes[1] if len(sizes) > 1 else spare
            ids = self.index.highest_ranked(label, max(1, min(spare, step)))
            self.delete([(id, label) for id in ids])

    def delete(self, which: Sequence[tuple[int, str | None]]) -> None:
        """Delete windows, given with their labels."""
        self.index.delete(id for id, _ in which)
        for _, label in which:
            self.counts[label] -= 1
            if not self.counts[label]:
                del self.counts[label]

    # -- what people say

    def label(self, activity: str | tuple[str | None, ...] | None, began: float, ended: float) -> int:
        """From `began` to `ended` this was done, or these one after the other, each as long, whatever was said before;
        None takes back what was said.

        A window has a label if one thing was done from its first sample to its last.

        Returns:
            How many windows have another label than before.

        Raises:
            UsageError: no name, or no stretch of time.
        """
        parts = activity if isinstance(activity, tuple) else (activity,)
        check_words(parts, began, ended)
        with self.changing():
            self.timeline.say_parts([part if part is None else part.strip() for part in parts], began, ended)
            changed = self.relabel(began, ended)
            self.index.save_spans((s.began, s.ended, s.activity) for s in self.timeline.spans)
        if changed > BATCH:
            self.shorten_log()
        return changed

    def relabel(self, began: float, ended: float) -> int:
        changed = first_labels = 0
        for id, first, end, old in self.index.overlapping(began, ended, self.longest):
            new = self.timeline.find(first, end)
            if new != old:
                self.index.set_label(id, new)
                self.counts[old] -= 1
                self.counts[new] = self.counts.get(new, 0) + 1
                changed, first_labels = changed + 1, first_labels + (old is None)
        self.counts = {label: count for label, count in self.counts.items() if count}
        self.labels_given = self.index.count_on(LABELS_GIVEN, first_labels)
        self.make_room(-inf)
        return changed

    def forget(self, began: float = -inf, ended: float = inf) -> int:
        """Erase every window that has a moment in this stretch of time, and what was said of it.

        Returns:
            How many windows there were.

        Raises:
            StoreUnusable: not all could be erased; the disk is read-only, or so full that not even this works.
        """
        gone = 0
        try:
            gone = self.erase_rows(began, ended)
            self.shorten_log()
            return gone
        except StoreUnusable as error:
            log.warning("%s; erasing without a log", error)
        try:
            with saying_unusable(self.path, "cannot be changed in place"), self.index.without_log():
                return gone + self.erase_rows(began, ended)
        except StoreUnusable as error:
            log.warning("%s; writing the store anew", error)
        with saying_unusable(self.path, "NOT all is erased: make some room on the disk and try again"):
            with self.index.rebuilt():
                gone += self.erase_rows(began, ended)
            return gone

    def erase_rows(self, began: float, ended: float) -> int:
        """Delete the windows of a stretch of time, and what was said of it, in one transaction."""
        with self.changing():
            gone = self.index.overlapping(began, ended, self.longest)
            self.delete([(id, label) for id, _, _, label in gone])
            self.timeline.say(None, began, ended)
            self.index.save_spans((s.began, s.ended, s.activity) for s in self.timeline.spans)
        return len(gone)

    def shorten_log(self) -> None:
        """Let nothing of what was deleted or changed stay in the log beside the database."""
        with self.lock, saying_unusable(self.path, "its log cannot be shortened"):
            self.index.shorten_log()

    # -- reading

    def count(self) -> dict[str, int]:
        """Label -> its windows; "" stands for those without one."""
        with self.lock:
            return {label or "": count for label, count in self.counts.items()}

    def labelled(self) -> StoredWindows:
        """All windows with a label, in order of time, without the windows themselves."""
        return self.select("label IS NOT NULL ORDER BY ended, id")

    def unlabelled(self, most: int, of: int) -> StoredWindows:
        """Windows without a label, by time: the latest `of`, none held out, thinned evenly to `most` at most."""
        found = self.select("label IS NULL AND held = 0 ORDER BY ended DESC, id DESC LIMIT ?", of)
        step = -(-len(found.ids) // most)
        return found.take(slice(None, None, max(1, step))).take(slice(None, None, -1))

    def select(self, which: str, *values: int) -> StoredWindows:
        text = f"SELECT id, began, ended, recording, label, held FROM windows WHERE {which}"
        with self.lock, saying_unusable(self.path, "cannot be read"):
            rows = self.index.run(text, values).fetchall()
        ids, began, ended, recording, labels, held = zip(*rows, strict=True) if rows else ((),) * 6
        return StoredWindows(
            np.asarray(ids, np.int64),
            np.asarray(began, np.float64),
            np.asarray(ended, np.float64),
            np.asarray(recording, np.int64),
            tuple(labels),
            np.asarray(held, np.bool_),
        )

    def read(self, id: int, since: float | None = None) -> npt.NDArray[np.float32] | None:
        """One window, (channels, window); None: it is gone by now, or was damaged and is deleted with a warning.

        Args:
            since: when it began, for who has known its number for long: another one may have that by now.
        """
        with self.lock, saying_unusable(self.path, "cannot be read"):
            found = self.index.find_signal(id)
        if found is None or since not in (None, found[0]):
            return None
        began, sealed = found
        try:
            data = self.cipher.open(sealed, ABOUT.pack(id, began))
            return np.frombuffer(data, "<f4").reshape(self.shape).astype(np.float32)
        except (DamagedWindow, ValueError) as error:
            log.warning("%s: window %d is deleted: %s", self.path, id, error)
        with self.changing():  # another process may have labelled it, or deleted it and taken its number
            self.delete(self.index.having(id, sealed))
        return None

    def close(self) -> None:
        with self.lock:
            self.index.close()
