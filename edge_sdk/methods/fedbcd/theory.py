"""What FedBCD's theorem asks of the step sizes (assumption A4), and warnings where settings do not meet it.

Source: sections 2 to 4 of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from edge_sdk.methods.fedbcd.equations import cloud_eta, count_in_step
from edge_sdk.methods.fedbcd.settings import FIRST_B, SYNC, OfflineSettings, Settings


def warnings(s: Settings, sizes: Mapping[str, int]) -> list[str]:
    """Settings with which a run leaves what the theorem covers, or diverges. Sentences; none of them stops a run.

    Args:
        sizes: hospital -> number of its devices.
    """
    return [*cloud_warnings(s, sizes), *device_warnings(s), *protocol_warnings(s, sizes)]


def cloud_warnings(s: Settings, sizes: Mapping[str, int]) -> list[str]:
    """A4 on eta_z: eta_z * sum of gamma_i <= 1 keeps z in X, above 2 the step alone diverges."""
    acting = heaviest_step(s, sizes)
    if acting <= 1 + 1e-9:
        return []
    said = f"eta_z = {s.eta_z} ({s.eta_mode}): eta_z times the sum of gamma_i is {acting:.3g}, the theorem asks for 1"
    if isinstance(s, OfflineSettings) and s.cloud == SYNC:
        pulled = acting * mean_pull(s)
        much = "diverges" if pulled > 2 else "may leave X"
        return [f"{said}; what was uploaded has been pulled, so that {pulled:.3g} acts: it {much}"]
    return [f"{said}: it {'diverges' if acting > 2 else 'may leave X'}"]


def heaviest_step(s: Settings, sizes: Mapping[str, int]) -> float:
    """eta_z times the largest possible sum of gamma_i in one step."""
    devices = sum(sizes.values())
    answering = sum(s.taking_part(n) for n in sizes.values())
    eta = cloud_eta(s, sizes, answering)
    if not isinstance(s, OfflineSettings) and s.cloud == SYNC:
        return eta * s.weights(devices)
    count = count_in_step(s, sizes, answering)
    return eta * count * s.largest(devices)


def mean_pull(s: Settings) -> float:
    """E[(1 - gamma)^K]: what a pull leaves of the distance between x and z."""
    steps = range(1, s.local_steps + 1) if s.draw_steps else [s.local_steps]
    return sum((1 - s.gamma) ** k for k in steps) / len(steps)


def device_warnings(s: Settings) -> list[str]:
    """A4 on eta_x and zeta, as far as the smoothness is known. Their rho_i, taken as max(0, L - gamma)."""
    if s.lipschitz is None or isinstance(s, OfflineSettings):
        return []
    found, smallest = [], min([s.gamma, *s.gammas.values()])
    limit = 1 / (s.lipschitz + max([s.gamma, *s.gammas.values()]))
    if s.eta_x > limit:
        found.append(f"eta_x = {s.eta_x}: the theorem asks for at most 1 / (L + gamma) = {limit:.3g}")
    momentum = 1 / sqrt(1 + max(0.0, s.lipschitz - smallest) * s.eta_x)
    if s.zeta >= momentum:
        found.append(f"zeta = {s.zeta}: the theorem asks for less than 1 / sqrt(1 + rho eta_x) = {momentum:.3g}")
    return found


def protocol_warnings(s: Settings, sizes: Mapping[str, int]) -> list[str]:
    found = []
    if s.cloud != SYNC and s.ready == 1 and len(sizes) > 1:
        found.append("ready = 1: a hospital alone mixes with nobody, so the hospitals never agree; 2 or more would do")
    if s.cloud != SYNC and s.graph == "identity" and len(sizes) > 1:
        found.append("graph = 'identity': nobody mixes with anybody, so the hospitals never agree")
    if s.cloud == FIRST_B and s.ready < len(sizes):
        found.append("cloud = 'first-b': who is late skips a round, which the theorem does not cover; 'rigorous' does")
    if isinstance(s, OfflineSettings) and s.gamma == 1:
        found.append("gamma = 1: a device would upload what it received, so z would never move")
    return found
