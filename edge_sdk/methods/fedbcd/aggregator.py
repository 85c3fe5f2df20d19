"""FedBCD's aggregator: in sync it holds z and makes the step of eq. (5); otherwise it mixes the hospitals' models."""

from __future__ import annotations

from collections.abc import Mapping

from edge_sdk.algebra import lowrank
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.contract.method import DOWN, Send, Step
from edge_sdk.errors import PeerError, UsageError
from edge_sdk.methods.fedbcd.equations import cloud_eta, cloud_step, common_start
from edge_sdk.methods.fedbcd.messages import FedbcdModel
from edge_sdk.methods.fedbcd.settings import RIGOROUS, SYNC, Env
from edge_sdk.methods.fedbcd.sums import ROUNDING, add_all, add_unheard, check_feasible, keeps_latest
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.gather import Sum
from edge_sdk.methods.shared.aggregation.server import ServerTerms, penalty, server_step
from edge_sdk.methods.shared.consensus import consensus, mixing
from edge_sdk.methods.shared.consensus.consensus import Cloud, Coordinator, Mixed, Ready


def describe_cloud(env: Env) -> Cloud:
    h = env.settings
    return Cloud(step=cloud_eta(h, env.sizes, 0), rigorous=h.cloud == RIGOROUS, graph=h.graph, repeats=h.cloud_steps)


MIXING = consensus.coordinator(lambda env: lowrank.dense(env.layout, common_start(env)), describe_cloud)


def aggregator_start(env: Env) -> Step:
    check_cloud(env)
    if env.settings.cloud == SYNC:
        s = Coordinator(lowrank.dense(env.layout, common_start(env)))
        return s, [Send(DOWN, Mixed(s.model, 0))]
    started: Step = MIXING.start(env)
    return started


def check_cloud(env: Env) -> None:
    """What settings cannot know by themselves.

    Raises:
        UsageError: the settings do not fit the hospitals that there are.
    """
    h = env.settings
    if env.devices < 1:
        raise UsageError("the aggregator knows of no device: sizes names each hospital with its number of devices")
    if h.cloud == SYNC:
        return
    if h.ready > len(env.sizes):
        raise UsageError(f"ready = {h.ready}: there are {len(env.sizes)} hospitals")
    if env.smooth_grad is not None:
        raise UsageError(f"a smooth term of the aggregator's own needs cloud = 'sync', it is {h.cloud!r}")
    if strangers := mixing.list_names(h.graph) - set(env.sizes):
        raise UsageError(f"graph names {min(strangers)!r}; the hospitals are {', '.join(sorted(env.sizes))}")


def aggregator_receive(env: Env, s: Coordinator, sender: str, message: object) -> Step:
    if isinstance(message, Ready) and message.sums is not None:
        check_sums(env, sender, message.sums)
    if env.settings.cloud == SYNC:
        if isinstance(message, Ready) and message.model is not None:
            raise PeerError(f"{sender} sent a model of its own, with cloud = {SYNC!r} the aggregator has the only one")
        return consensus.hear(env, s, sender, message), []
    received: Step = MIXING.receive(env, s, sender, message)
    return received


def check_sums(env: Env, sender: str, m: Sum) -> None:
    """The sums of a hospital's devices lie within what the settings allow so many devices.

    Raises:
        PeerError: they do not.
    """
    most = m.count * env.settings.largest(env.devices)
    if m.weight > most * (1 + ROUNDING):
        raise PeerError(f"{sender} sent weight {m.weight:.6g} of {m.count} devices, it is at most {most:.6g}")
    check_feasible(env, sender, m.total / m.weight)


def aggregator_close(env: Env, s: Coordinator) -> Step:
    if env.settings.cloud != SYNC:
        closed: Step = MIXING.close(env, s)
        return closed
    told = consensus.tell_progress(s)
    news = {h: m.sums for h, m in s.ready.items() if m.sums is not None}
    past = {**s.past, **news} if keeps_latest(env) else news
    s = Coordinator(step_model(env, s.model, past), s.round + 1, past=past if keeps_latest(env) else {})
    return s, [told] if s.round >= env.rounds else [told, Send(DOWN, Mixed(s.model, s.round))]


def step_model(env: Env, model: Packed, parts: Mapping[str, Sum]) -> Packed:
    """Eq. (5) on the hospitals' sums."""
    return step_on_total(env, model, add_up_hospitals(env, parts))


def step_on_total(env: Env, model: Packed, total: Sum | None) -> Packed:
    """Eq. (5), K_z times, with the aggregator's own terms if it has any. None: nobody was heard."""
    if total is None:
        return model
    h = env.settings
    eta_z = cloud_eta(h, env.sizes, total.count)
    terms = ServerTerms(env.smooth_grad, penalty(h.server_penalty, h.lam, env.svt))
    for _ in range(h.cloud_steps):
        z = lowrank.unpack(env.layout, model)
        model = server_step(terms, env.layout, cloud_step(z, total, eta_z), at=z, step=eta_z)
    return model


def add_up_hospitals(env: Env, parts: Mapping[str, Sum]) -> Sum | None:
    """The sum over all devices, with those of hospitals not heard yet at the common start.

    In FedBCD-I over those that answered.
    """
    parts = {h: m for h, m in parts.items() if h in env.sizes}  # a hospital that has left has no part any more
    tally = add_all(None, parts)
    heard = None if tally is None else gather.total(tally, env.theta0)
    if not keeps_latest(env) or set(parts) >= set(env.sizes):
        return heard
    unheard = env.settings.weights(env.devices) - (heard.weight if heard else 0.0)
    return add_unheard(heard, unheard, common_start(env), env.devices)


def show(env: Env, s: Coordinator) -> FedbcdModel:
    return FedbcdModel(s.model, s.round)
