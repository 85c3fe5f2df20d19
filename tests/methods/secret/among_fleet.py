"""Six devices whose hospital is the test: it asks each of them whatever it likes."""

import copy
from dataclasses import replace

import numpy as np

from edge_sdk.contract.environment.sharing import COMMITTED, PUBLIC, SEALED, TAG
from edge_sdk.contract.method import OUT, UP
from edge_sdk.methods.secret.messages.among_messages import (
    Agreement,
    Confirmed,
    KeysOffer,
    Participants,
    PassedShares,
    Survivors,
    Withheld,
    pieces,
    to_bits,
    to_octets,
)
from edge_sdk.methods.secret.messages.messages import NumberedQuestion
from edge_sdk.nodes.configuration.assembly import method_of
from tests.methods.problems import DEVICES
from tests.methods.secret.among import CALM, among_envs, among_run, keeper_of, played

RUN = among_run(rounds=2)
METHOD = method_of(RUN)
_, TRANSCRIPT = played(RUN, faults=CALM)
QUESTIONS = {b: m for _, b, m in reversed(TRANSCRIPT.crossed) if isinstance(m, NumberedQuestion)}  # the first of each
WIDTH = next(m.width for _, _, m in TRANSCRIPT.crossed if isinstance(m, PassedShares))
TICKET = QUESTIONS["d0"].ticket


class Fleet:
    """Six devices whose hospital is the test: it asks each of them whatever it likes."""

    def __init__(self):
        envs = among_envs(RUN)
        self.envs = {d: replace(envs[d], me=d) for d in DEVICES}
        self.states = {d: METHOD.device.start(env)[0] for d, env in self.envs.items()}
        self.why = []

    def ask(self, name, m):
        """The device's answer."""
        self.states[name], sends = METHOD.device.receive(self.envs[name], self.states[name], UP, m)
        self.why += [send.message.why for send in sends if send.to == OUT and isinstance(send.message, Withheld)]
        return next(send.message for send in sends if send.to == UP)

    def ask_all(self, make, names=DEVICES):
        return {name: self.ask(name, make(name)) for name in names}

    def restart(self, name):
        """A new process on the same disk, or on one that was put back: the state is what it was, and no secret is."""
        self.states[name] = copy.deepcopy(self.states[name])
        self.envs[name] = replace(self.envs[name], secrets=keeper_of(name))

    # An honest hospital's questions, which tests change
    def offers(self):
        self.roster = roster_of(self.ask_all(QUESTIONS.get))
        return self.roster

    def deals(self):
        return self.take_dealt(self.ask_all(lambda d: self.roster))

    def take_dealt(self, dealt):
        self.dealt = {d: pieces(m.sealed, SEALED, others(d)) for d, m in dealt.items()}
        self.committed = {d: pieces(m.commitments, COMMITTED, DEVICES) for d, m in dealt.items()}
        return self.dealt

    def passed(self, name, dealers=DEVICES):
        peers = [peer for peer in others(name) if peer in dealers]
        sealed, said = (to_octets([of[peer][name] for peer in peers]) for of in (self.dealt, self.committed))
        return PassedShares(self.roster.ticket, WIDTH, to_bits(DEVICES, dealers), sealed, said)

    def survivors(self, members=DEVICES):
        return Survivors(self.roster.ticket, to_bits(DEVICES, members))

    def agreement(self, name, confirmed, members=DEVICES):
        """The words that some have said to one, of which each knows the members it was shown."""
        said = []
        for peer in others(name):
            if isinstance(m := confirmed.get(peer), Confirmed):
                said.append(pieces(m.words, TAG, [d for d in others(peer) if d in members]).get(name, bytes(TAG)))
        senders = [d for d in confirmed if isinstance(confirmed[d], Confirmed)]
        return Agreement(self.roster.ticket, to_bits(DEVICES, senders), to_octets(said))

    def upto(self, step):
        """Ask all of them honestly, up to and with a step."""
        for ask in ("offers", "deals", "covers", "confirms")[:step]:
            getattr(self, ask)()
        return self

    def covers(self):
        self.covered = self.ask_all(self.passed)
        return self.covered

    def confirms(self):
        self.confirmed = self.ask_all(lambda d: self.survivors())
        return self.confirmed


def fleet_offer(roster, name):
    """A device's offer, as the roster has it."""
    return KeysOffer(roster.form, np.frombuffer(pieces(roster.publics, PUBLIC, roster.names)[name], np.uint8))


def roster_of(offers, like=DEVICES[-1]):
    publics = to_octets([m.public.tobytes() for m in offers.values()])
    return Participants(TICKET, offers[like].form, tuple(offers), publics)


def others(name):
    return [d for d in DEVICES if d != name]
