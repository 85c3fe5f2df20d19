"""Local noise in FedAL's outputs: what a device says of each public input is cut to a length, and noise is added.

Outputs are compared one by one, so no sum can share the noise: each output vector has all of it (local differential
privacy). Two runs are compared that differ in one device, whose outputs are nothing but noise in the other one.

    f(x)      logits of one public input, shortened to `clip`
    rounded   to whole steps, up or down at random, again and again until they are within a bound that holds for all
    + noise   integers of a discrete Gaussian, from the operating system's entropy, saved with the message
    counted   each vector by itself: a run has rounds * tau * public_batch of them

Nothing else of the device leaves: no scores, and an answer also where training has diverged. What is made of the noisy
outputs (consensus, discriminator, feedback) follows from them. A device goes on from its own outputs as they were,
also in the consensus of the others, from which it takes itself out: there a device's own noise stays, divided by the
number of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.secure_aggregation.discrete import LARGEST_VARIANCE, draw_gaussian
from edge_sdk.contract.method import UP, Method, Role, Step
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedal.aggregator import AggregatorState
from edge_sdk.methods.fedal.device import DeviceState
from edge_sdk.methods.fedal.distillation import Logits
from edge_sdk.methods.fedal.messages import LOGITS, Consensus, Feedback, Local, Outputs, Settled
from edge_sdk.methods.fedal.settings import Env, Settings
from edge_sdk.methods.integers.vectors.privacy import OFF, Privacy, rounded_length
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.methods.shared.evaluation.healing import heal
from edge_sdk.methods.shared.evaluation.spent import PrivacySpent

NOISE = 5  # purpose of randomness, beyond those of the settings
FINEST, WIDEST = 256, 1024
"""Steps in a clip, and steps in a standard deviation of noise, at most: finer ones bring nothing."""


@dataclass(frozen=True)
class OutputNoise:
    """The noise of one output vector.

    Attributes:
        step: size of a step. bound: length of a rounded vector, in steps. variance: of the noise, in steps squared.
    """

    step: float
    bound: float
    variance: int

    @property
    def rho(self) -> float:
        """What one noisy vector says of its device."""
        return 0.5 * self.bound**2 / self.variance


def noise_of(s: Settings, p: Privacy, rounds: int, width: int) -> OutputNoise:
    """The noise of a run's output vectors of so many numbers.

    Raises:
        UsageError: it is more than can be drawn.
    """
    times = p.multiplier(vectors(s, rounds))
    step = p.clip * max(1 / FINEST, times / WIDEST)
    bound = rounded_length(p.clip, step, width) / step
    variance = ceil((times * bound) ** 2)
    if variance > LARGEST_VARIANCE:
        raise UsageError(
            f"run.privacy with method fedal: {vectors(s, rounds)} vectors of {width} numbers take noise of {times:.0f} "
            f"clips, a variance of {variance} steps, and at most {LARGEST_VARIANCE} can be drawn: less noise (a larger "
            "epsilon), fewer rounds, or a smaller public_batch"
        )
    return OutputNoise(step, bound, variance)


def vectors(s: Settings, rounds: int) -> int:
    """Output vectors of one device in a run."""
    return rounds * s.tau * s.public_batch


def add_noise(env: Env, p: Privacy, logits: Logits, *seed: int) -> Logits:
    """Outputs (B, K) as they may leave. What is not finite counts as zeros.

    Raises:
        UsageError: this node was given no entropy.
    """
    if env.entropy is None:
        raise UsageError(f"{env.me}: noise needs a source of entropy")
    noise = noise_of(env.settings, p, env.rounds, logits.shape[1])
    steps = round_within(shortened(logits, p.clip) / noise.step, noise.bound, env.random(seed[0], NOISE, *seed[1:]))
    steps += draw_gaussian(noise.variance, steps.size, env.entropy).reshape(steps.shape)
    return (steps * noise.step).astype(logits.dtype)


def shortened(logits: Logits, clip: float) -> npt.NDArray[np.float64]:
    """Each row (K,), or the one in its direction that is as long as may be."""
    x = np.where(np.isfinite(logits).all(1, keepdims=True), logits, 0.0).astype(np.float64)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    found: npt.NDArray[np.float64] = x * (clip / np.maximum(length, clip))
    return found


def round_within(x: npt.NDArray[np.float64], bound: float, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Rows as whole steps, each drawn again until it is short enough."""
    steps = np.floor(x + random.random(x.shape)).astype(np.int64)
    while (long := np.flatnonzero((steps**2).sum(1) > bound**2)).size:
        steps[long] = np.floor(x[long] + random.random(x[long].shape)).astype(np.int64)
    return steps


# Around the method ----------------------------------------------------------------------------------------------
def noisy(method: Method, s: Settings, p: Privacy) -> Method:
    """FedAL whose devices' outputs have noise.

    Raises:
        UsageError: something else of a device would leave, or a setting promises what it cannot keep.
    """
    check(method.name, s, p)
    return replace(method, device=device(method.device, p), spent=spent(p), tells_scores=False)


def check(name: str, s: Settings, p: Privacy) -> None:
    why = ""
    if s.averaging != "none":
        why = f"averaging = {s.averaging!r}: models would leave without noise"
    if p.cohort != 1:
        why = f"cohort = {p.cohort}: outputs are read one by one, so each has all of the noise: cohort = 1"
    if p.scores != OFF:
        why = f"scores = {p.scores!r}: only outputs have noise: scores = {OFF!r}"
    if why:
        raise UsageError(f"run.privacy with method {name}: {why}")


def device(inner: Role, p: Privacy) -> Role:
    """A device whose outputs leave with noise, and with no scores beside them."""

    def receive(env: Env, s: DeviceState, sender: str, m: Any) -> Step:
        state, sends = heal(inner, env, s, inner.receive(env, s, sender, m), s.round)
        return noted(env, state, m), [
            send if send.to != UP else replace(send, message=protected(env, m, send.message)) for send in sends
        ]

    def protected(env: Env, question: Local | Feedback, answer: Outputs | Settled | Nobody) -> Outputs | Settled:
        """The answer with noise. To be absent would tell that training has diverged, so nobody is."""
        if question.then != LOGITS:
            return Settled()
        number = LOCAL_NOISE.number(env.settings, question) or 0
        size = env.settings.public_batch, env.settings.width(env.classes)
        logits = answer.logits if isinstance(answer, Outputs) else np.zeros(size, env.theta0.dtype)
        return Outputs(add_noise(env, p, logits, question.round, number))

    return replace(inner, receive=receive)


def noted(env: Env, s: DeviceState, question: Any) -> DeviceState:
    """The state, by which the question is answered also where training has diverged or its stage was not seen.

    The same question is known by it when it comes again (`LocalNoise.answered`), so that its noise is charged again.
    Feedback on such an answer finds no outputs to refer to, as in a state that was left as it had been.
    """
    number = LOCAL_NOISE.number(env.settings, question)
    if number is None or LOCAL_NOISE.answered(env.settings, s) >= number:
        return s
    exchange = number - question.round * env.settings.tau
    return replace(s, round=question.round, exchange=exchange, sent=s.sent[:0])


def spent(p: Privacy) -> Any:
    """What a run has told so far; outputs that are asked for now count as if they had been sent."""

    def told(env: Env, state: AggregatorState) -> PrivacySpent:
        s = env.settings
        exchanges = min(env.rounds * s.tau, state.round * s.tau + state.exchange + 1)
        rho = noise_of(s, p, env.rounds, s.width(env.classes)).rho
        epsilon = env.accountant({rho: exchanges * s.public_batch}, p.delta)
        return PrivacySpent(epsilon, epsilon, p.delta)

    return told


class LocalNoise:
    """`OwnNoise` of FedAL."""

    def around(self, method: Method, settings: Settings, privacy: Privacy) -> Method:
        return noisy(method, settings, privacy)

    def check(self, settings: Settings, privacy: Privacy, rounds: int, classes: int) -> None:
        noise_of(settings, privacy, rounds, settings.width(classes))

    def answers(self, settings: Settings, rounds: int) -> int:
        return rounds * settings.tau

    def rho(self, settings: Settings, privacy: Privacy, rounds: int) -> float:
        """rho of the vectors of one exchange; what rounding adds to their length, noise is as much larger for."""
        return settings.public_batch * 0.5 / privacy.multiplier(vectors(settings, rounds)) ** 2

    def number(self, settings: Settings, question: Any) -> int | None:
        if not isinstance(question, Local | Feedback | Consensus) or question.then != LOGITS:
            return None
        exchange = 0 if isinstance(question, Local) else question.exchange + 1
        return 1 + question.round * settings.tau + exchange

    def answered(self, settings: Settings, state: Any) -> int:
        if not isinstance(state, DeviceState) or state.round < 0:
            return 0
        return state.round * settings.tau + state.exchange + (1 if len(state.sent) else 0)


LOCAL_NOISE = LocalNoise()
