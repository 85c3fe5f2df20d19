"""Integers in plain words: matrices in place of fast transforms, Python's integers in place of rings, one loop in place
of messages. A method's own roles are called inside; everybody takes part in every round, and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import floor
from zlib import crc32

import numpy as np

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.contract.method import DOWN, OUT, UP
from tests.methods.problems import LAYOUT, SEED, TREE

UPWARD, DOWNWARD = 0x5550, 0x444F


def hadamard(size):
    return np.array([[(-1) ** (i & j).bit_count() for j in range(size)] for i in range(size)]) / size**0.5


def rotation(n, version, purpose):
    """The matrix of a rotation: signs, interleaved blocks of a power of two, and once more the last block."""
    octets = np.frombuffer(np.random.default_rng([SEED, version, purpose]).bytes(-(-n // 8)), np.uint8)
    signs = np.diag(1.0 - 2.0 * np.unpackbits(octets, count=n))
    block = min(4096, 2 ** int(np.log2(n)))
    blocks, first, last = n // block, np.eye(n), np.eye(n)
    for j in range(blocks):
        mine = [i * blocks + j for i in range(block)]
        first[np.ix_(mine, mine)] = hadamard(block)
    if blocks * block < n:
        last[n - block :, n - block :] = hadamard(block) @ signs[:block, :block]
    return last @ first @ signs


def usual(bits):
    return min(6.0, 0.5 + 0.55 * bits)


@dataclass
class Sent:
    """A rounded vector: what its integers stand for, the size of its numbers, and the integers."""

    vector: np.ndarray
    spread: float
    integers: list[int]


def send(x, who, version, purpose, bits, half=0.0):
    n, top = len(x), 2 ** (bits - 1) - 1
    turn = rotation(n, version, purpose)
    y, u = turn @ x, np.random.default_rng([SEED, version, crc32(who.encode()), purpose]).random(n, np.float32)
    spread = float(np.sqrt(np.mean(y**2)))
    half = half or usual(bits) * spread or 1.0
    whole = [max(-top, min(top, floor(y[i] * (top / half) + float(u[i])))) for i in range(n)]
    return Sent(turn.T @ (np.array(whole) * (half / top)), spread, whole)


# Vectors of messages --------------------------------------------------------------------------------------------
def get(message, path):
    for name in path.split("."):
        message = None if message is None else getattr(message, name)
    return lowrank.unpack(LAYOUT, message) if isinstance(message, Packed) else message


def put(message, path, vector):
    name, _, rest = path.partition(".")
    old = getattr(message, name)
    if rest:
        return replace(message, **{name: put(old, rest, vector)})
    return replace(message, **{name: lowrank.dense(LAYOUT, vector) if isinstance(old, Packed) else vector})


def put_all(message, paths, vector):
    for path, part in zip(paths, np.split(vector, len(paths)), strict=True):
        message = put(message, path, part)
    return message


@dataclass
class Channel:
    """A run of a method with everybody, and integers in between.

    Attributes:
        left: node -> what rounding has left of its last upload.
        sums: (hospital, round) -> the sum of its devices' integers, where it is sent unopened.
        factored: rounds whose question had factors in place of a difference.
    """

    method: object
    envs: dict
    bits: int
    down_bits: int
    traffic: object
    left: dict = field(default_factory=dict)
    sums: dict = field(default_factory=dict)
    opens: bool = False
    reference: np.ndarray = None
    model: np.ndarray = None
    version: int = 0
    spread: float = 0.0
    factored: int = 0

    def paths(self, message):
        table = self.traffic.up if type(message) in self.traffic.up else self.traffic.down
        return sorted(p for p in table.get(type(message), ()) if get(message, p) is not None)

    def anchors(self, who, message, at):
        """What lies near the vectors of an upload, one behind the other."""
        found = [self.traffic.anchor(self.envs[who], who, message, p, at) for p in self.paths(message)]
        size = len(get(message, self.paths(message)[0]))
        return np.concatenate([np.zeros(size) if v is None else v for v in found])

    def vector(self, message):
        return np.concatenate([get(message, p) for p in self.paths(message)])

    def upload(self, who, message, bits, half):
        """An upload through the channel: opened again, with its spread and integers."""
        if not self.paths(message):
            return message, 0.0, None
        x = self.vector(message) - self.anchors(who, message, self.reference)
        x = x + (self.left[who] if who in self.left and len(self.left[who]) == len(x) else 0.0)
        sent = send(x, who, self.version, UPWARD, bits, half)
        self.left[who] = x - sent.vector
        opened = put_all(message, self.paths(message), sent.vector + self.anchors(who, message, self.reference))
        return self.traffic.mend(self.envs[who], who, opened), sent.spread, sent.integers

    def ask(self, sends):
        """Questions of the aggregator: hospital -> what it is asked, with the reference in it."""
        asked = {}
        for s in sends:
            if s.to not in (UP, OUT):
                asked |= dict.fromkeys(TREE if s.to == DOWN else (s.to,) if isinstance(s.to, str) else s.to, s.message)
        if not asked or not (paths := self.paths(next(iter(asked.values())))):
            return asked, False
        self.model = np.concatenate([get(next(iter(asked.values())), p) for p in paths])
        self.version += 1
        value = getattr(next(iter(asked.values())), paths[0])
        bits = max(12, self.down_bits)
        if isinstance(value, Packed) and bits * len(value.values) < self.down_bits * len(self.model):
            self.factored += 1
            values = send(value.values, "aggregator", self.version, DOWNWARD, bits).vector
            self.reference = lowrank.unpack(LAYOUT, Packed(value.ranks, values))
            return {h: put_all(m, paths, self.reference) for h, m in asked.items()}, True
        moved = send(self.model - self.reference, "aggregator", self.version, DOWNWARD, self.down_bits)
        self.reference = self.reference + moved.vector
        return {h: put_all(m, paths, self.reference) for h, m in asked.items()}, True

    def run(self):
        """The aggregator's last state."""
        roles = self.method
        states = {n: role.start(self.env(n)) for n, role in self.roles()}
        sends, states = states["aggregator"][1], {n: s for n, (s, _) in states.items()}
        self.reference = self.traffic.first(self.envs["aggregator"])
        while True:
            asked, rounds = self.ask(sends)
            if not asked:
                return states["aggregator"]
            spreads = []
            own = self.opens or not self.spread
            bits, half = (16 if not self.opens and own else self.bits), 0.0 if own else usual(self.bits) * self.spread
            for h, question in asked.items():
                answer, spread = self.hospital(states, h, question, bits, half, rounds)
                spreads.append(spread)
                states["aggregator"], _ = roles.aggregator.receive(
                    self.env("aggregator"), states["aggregator"], h, answer
                )
            if rounds:
                self.spread = max(*spreads, 0.8 * self.spread)
            states["aggregator"], sends = roles.aggregator.close(self.env("aggregator"), states["aggregator"])

    def roles(self):
        yield "aggregator", self.method.aggregator
        for h, devices in TREE.items():
            yield h, self.method.hospital
            yield from ((d, self.method.device) for d in devices)

    def env(self, name):
        here = tuple(TREE) if name == "aggregator" else TREE.get(name, ())
        return replace(self.envs[name], me=name, here=here)

    def hospital(self, states, h, question, bits, half, rounds):
        """A hospital's answer as the aggregator opens it, and the largest spread behind it."""
        states[h], sends = self.method.hospital.receive(self.env(h), states[h], UP, question)
        spreads, integers = [], []
        for send_ in sends:
            for d in TREE[h] if send_.to == DOWN else send_.to:
                states[d], answers = self.method.device.receive(self.env(d), states[d], UP, send_.message)
                (message,) = [a.message for a in answers if a.to == UP]
                if rounds:
                    message, spread, whole = self.upload(d, message, bits, half)
                    spreads.append(spread)
                    integers.append(whole)
                states[h], _ = self.method.hospital.receive(self.env(h), states[h], d, message)
        states[h], sends = self.method.hospital.close(self.env(h), states[h])
        (answer,) = [s.message for s in sends if s.to == UP]
        if not rounds or not self.paths(answer):
            return answer, 0.0
        if half:
            self.sums[h, self.version] = [sum(column) for column in zip(*integers, strict=True)]
            spread = max(spreads)
        else:
            wide = (2 * (2 ** (bits - 1) - 1) * len(spreads)).bit_length()
            answer, spread, _ = self.upload(h, answer, min(16, wide), 0.0)
        if self.traffic.moves:
            moved = self.vector(answer) - self.anchors(h, answer, self.reference)
            answer = put_all(answer, self.paths(answer), moved + self.anchors(h, answer, self.model))
        return answer, spread
