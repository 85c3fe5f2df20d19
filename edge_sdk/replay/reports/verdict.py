"""The first line of every report: does joining pay, against the best that a device can do by itself?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_sdk.replay.metrics.scores import ALONE, ALONE_LINEAR, ALONE_TREES, POOLED
from edge_sdk.replay.metrics.statistics import MACRO_F1, score_of
from edge_sdk.replay.neighbours.candidates import LINEAR, NETWORK, TREES
from edge_sdk.replay.neighbours.features import FEATURES, PIXELS
from edge_sdk.replay.neighbours.told import COMPUTED, LEFT_OUT, MISSING
from edge_sdk.replay.reports.tables import TITLES, interval

OURS = {"personalised": "the personal models", "companion": "the companions", "global": "the shared models"}
"""Models by which devices predict, the first that there is, and what they are called in a sentence: in the plural."""
FEWEST = 3
"""Devices from which on an interval over devices says who wins."""
NO_WIN = "so nothing is said of whether joining pays"


def titles_of(result: Mapping[str, Any]) -> dict[str, str]:
    """Model -> what it is called in the tables of a result."""
    told = result.get("neighbours") or {}
    if told.get("state") != COMPUTED:
        return dict(TITLES)
    on, drawn = told["on"], f", {told['devices']} of {told['of']} devices" * (told["devices"] < told["of"])
    found = {ALONE: f"alone ({kinds_in_words(told['chosen'], on)}{drawn})"}
    found |= {ALONE_LINEAR: f"alone, {kind_in_words(LINEAR, on)}", ALONE_TREES: f"alone, {kind_in_words(TREES, on)}"}
    if told["pooled"]["chosen"]:
        found[POOLED] = f"all data in one place ({kinds_in_words(told['pooled']['chosen'], on)})"
    return {**TITLES, **found}


def kind_in_words(kind: str, on: str) -> str:
    """A kind of model, and what it looks at: "trees on features"."""
    looks = {FEATURES: " on features", PIXELS: " on pixels"}.get(on, "")
    words = {TREES: f"trees{looks}", LINEAR: f"linear model{looks}", NETWORK: "network"}
    return words.get(kind, kind)


def kinds_in_words(chosen: str | Sequence[str], on: str) -> str:
    """The kind that was chosen; of several seeds each that one of them has."""
    return " or ".join(kind_in_words(kind, on) for kind in ([chosen] if isinstance(chosen, str) else chosen))


def verdict(result: Mapping[str, Any]) -> str:
    """Who wins, in one sentence; "" of a result that knows nothing of neighbours."""
    told = result.get("neighbours") or {}
    if not told:
        return ""
    if told["state"] != COMPUTED:
        return why_not(told)
    found = result["statistics"].get("all", {}).get(f"against_{ALONE}", {})
    ours = next((name for name in OURS if name in found), None)
    if ours is None:
        return f"The strongest neighbour has nothing to be compared with here, {NO_WIN}."
    return sentence(told, found[ours], OURS[ours])


def empty_rounds(results: Sequence[Mapping[str, Any]]) -> str:
    """A sentence where rounds of some runs counted no device, so that the model has not moved in them; "": none.

    Training that diverges is dropped on the device, round by round.
    """
    rounds = [line for result in results for line in result.get("curve", ()) if line["kind"] == "round"]
    empty = sum(line.get("devices", 1) == 0 for line in rounds)
    if not empty:
        return ""
    return (
        f"In {empty} of {len(rounds)} rounds no device's training counted, and the model stayed as it was: it diverged "
        "(a smaller step size, or scaled inputs, may help), or nobody answered."
    )


def lost_layers(results: Sequence[Mapping[str, Any]]) -> str:
    """A sentence where models of some runs have ended with running variances below zero; "": none has."""
    lost = dict.fromkeys(name for result in results for name in result.get("model", {}).get("lost_variances", ()))
    if not lost:
        return ""
    return (
        f"The model's running variances of {', '.join(lost)} are below zero in places, so predictions are worth "
        "little: give uploads more bits, freeze the statistics (--norm frozen; a torch module: net.eval()), or use "
        "GroupNorm."
    )


def why_not(told: Mapping[str, Any]) -> str:
    """Why there is no neighbour, in one sentence."""
    if told["state"] == LEFT_OUT:
        return f"The strongest neighbour was left out (--no-neighbours), {NO_WIN}."
    if told["state"] == MISSING:
        needs = "it needs scikit-learn (pip install 'auscult[replay]')"
        return f"The strongest neighbour was not computed, for {needs}, {NO_WIN}."
    return f"No neighbour is defined here, because {told['why']}, {NO_WIN}."


def sentence(told: Mapping[str, Any], d: Mapping[str, Any], ours: str, where: str = "") -> str:
    """Who wins, by a difference with its interval over devices. `where`: on which samples, if not the test's."""
    alone = kinds_in_words(told["chosen"], told["on"])
    several = alone.startswith("trees")
    alone = f"{alone} reach {share(d['than'])}" if several else f"a {alone} reaches {share(d['than'])}"
    reached = share(d[score_of(d)])
    own = f"{ours} {'reach ' if d['low'] > 0 else ''}{reached}"
    if d["devices"] < FEWEST:
        said = f"{FEWEST - 1} devices or fewer are too few to tell who wins: {alone}{where}, {own}"
    elif d["high"] < 0:
        said = f"Training alone is better here: {alone}{where}, {own}"
    elif d["low"] > 0:
        said = f"Joining pays: {own}{where}, alone {alone}"
    else:
        said = f"Nobody clearly wins here: {alone}{where}, {own}"
    more = f"; {harmed} of {d['devices']} devices worse by more than a point" if (harmed := count_harmed(d)) else ""
    chosen = "" if told["samples"] else "; without validation samples there was nothing to choose by"
    said = f"{said} macro-F1" if score_of(d) == MACRO_F1 else said
    return f"{said} ({interval(d)} points{more}{chosen})."


def count_harmed(d: Mapping[str, Any]) -> int:
    """Devices that are worse by more than a point."""
    return round(float(d["worse_by_a_point"]) * int(d["devices"]))


def share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f} %"
