"""Writes the table of docs/messages.md, from the types that methods declare and docs/messages.toml.

python docs/write_messages.py          # rewrites the part between the two marks
python docs/write_messages.py --check  # says whether it is current
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from edge_sdk.contract.method import Method  # noqa: E402
from edge_sdk.errors import UsageError  # noqa: E402
from edge_sdk.methods import METHODS  # noqa: E402
from edge_sdk.methods.integers.method import rounded  # noqa: E402
from edge_sdk.methods.integers.vectors.privacy import NOISY, Privacy  # noqa: E402
from edge_sdk.methods.integers.vectors.settings import AMONG, Uploads  # noqa: E402
from edge_sdk.methods.noisy_phases.method import with_noise  # noqa: E402
from edge_sdk.methods.noisy_phases.plan import PhasesPlan  # noqa: E402
from edge_sdk.methods.rollout.method import ROLLOUT  # noqa: E402
from edge_sdk.methods.secret.method import secret  # noqa: E402
from edge_sdk.methods.settling.method import settled  # noqa: E402
from edge_sdk.methods.settling.self_training import self_trained  # noqa: E402
from edge_sdk.methods.settling.settings import Settling  # noqa: E402
from edge_sdk.methods.shared.evaluation.evaluation import evaluated  # noqa: E402
from edge_sdk.methods.standardising.method import standardised  # noqa: E402

PRIVACY = Privacy(clip=1.0, noise=1.0)
PAGE, WORDS = ROOT / "docs" / "messages.md", ROOT / "docs" / "messages.toml"
BEGIN, END = "<!-- messages: written by docs/write_messages.py -->", "<!-- end of messages -->"
HEAD = ("message", "way", "carries", "methods", "tells who reads it", "hidden by")
EVERY = "every method"
SWITCHES = {"Integers": "integers", "Changes": "integers", "Behind": "integers", "NumberedQuestion": "secret sums"}
SWITCHES |= dict.fromkeys(("Masked", "MaskedSum", "TooFew"), "secret sums")
SWITCHES |= dict.fromkeys(("Examine", "WithLabels", "LabelledModel"), "label_times")
SWITCHES |= dict.fromkeys(
    ("AskFeatures", "FeatureSums", "WithStatistics", "NeedStatistics", "Standardised"), "statistics"
)
SWITCHES |= {"NoisySums": "noise that settle", "InScales": "noise and statistics"}
SWITCHES |= dict.fromkeys(("PoolReady", "PoolQuestion"), "secret sums over hospitals")
AMONG_DEVICES = (
    *(
        "KeysOffer",
        "Participants",
        "Dealt",
        "PassedShares",
        "Covered",
        "Survivors",
        "Confirmed",
        "Agreement",
        "Revealed",
    ),
    *("Withdrawn", "NoSum"),
)
SWITCHES |= dict.fromkeys(AMONG_DEVICES, "secret sums among devices")
NAMES = {"d": "device", "h": "hospital", "a": "aggregator"}


def words() -> dict[str, dict[str, Any]]:
    """Message -> what docs/messages.toml says of it."""
    return tomllib.loads(WORDS.read_text(encoding="utf-8"))


def declared() -> dict[str, type]:
    """Every type that some run may send, by name; labels of integers are the messages that they stand for."""
    found: dict[str, type] = {}
    for method in (*METHODS.values(), ROLLOUT):
        for kind in all_types(method):
            if not kind.__name__.endswith("Label"):
                found[kind.__name__] = kind
    return found


def all_types(method: Method) -> tuple[type, ...]:
    """What a method declares by itself, and with everything around it that it can have."""
    around, adding = [evaluated(method)], method.adding or method
    for more in (
        lambda: standardised(self_trained(settled(method, Settling()), Settling())),
        lambda: with_noise(settled(noisy(method), Settling()), PhasesPlan(Settling(), PRIVACY, 1)),
        lambda: rounded(method, method.settings(), Uploads()),
        lambda: secret(evaluated(adding), adding, method.settings(), Uploads(secret=True)),
        lambda: secret(evaluated(adding), adding, method.settings(), Uploads(secret=True, hospitals=2)),
        lambda: secret(evaluated(adding), adding, method.settings(), Uploads(secret=AMONG)),
        lambda: evaluated(adding),
    ):
        try:
            around.append(more())
        except UsageError:  # it cannot
            continue
    return tuple(dict.fromkeys(kind for one in around for kind in one.messages))


def noisy(method: Method) -> Method:
    """The method with noise in its uploads."""
    return rounded(method, method.settings(), Uploads(**NOISY), privacy=PRIVACY)


def users(name: str) -> str:
    """Methods that declare a message by themselves; of others, what adds it."""
    own = [f"`{key}`" for key, method in METHODS.items() if name in own_names(method)]
    if own:
        return EVERY if len(own) == len(METHODS) else ", ".join(own)
    if name in SWITCHES:
        return f"runs with {SWITCHES[name]}"
    if name in {kind.__name__ for kind in ROLLOUT.messages} - {"Finished"}:
        return "rollouts"
    return "runs that settle" if name in ("Settle", "Chosen", "Counts") else EVERY


def own_names(method: Method) -> set[str]:
    """Messages that a method declares by itself, in either form."""
    return {kind.__name__ for kind in (*method.messages, *(method.adding or method).messages)}


def row(name: str, kind: type, said: Mapping[str, Any]) -> tuple[str, ...]:
    ways = ", ".join(" to ".join(NAMES[end] for end in way.split(">")) if ">" in way else way for way in said["ways"])
    carries = ", ".join(f"`{f.name}`" for f in fields(kind)) or "nothing"
    return (f"`{name}`", ways, carries, users(name), said["tells"], said["hidden"])


def table() -> str:
    """The table, as Markdown."""
    said, kinds = words(), declared()
    if strangers := sorted({*said} ^ {*kinds}):
        raise SystemExit(f"{WORDS.name} and the methods do not agree about {', '.join(strangers)}")
    ordered = sorted(kinds, key=lambda name: list(said).index(name))
    lines = [HEAD, tuple("---" for _ in HEAD), *(row(name, kinds[name], said[name]) for name in ordered)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def written(page: str) -> str:
    """The page with the table as it has to be."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    now = written(page)
    if "--check" in sys.argv and now != page:
        raise SystemExit(f"{PAGE.name} is not current: python docs/write_messages.py")
    PAGE.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    main()
