"""Labels as people type them: one name for each class, and none where nobody has said what was done."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from edge_sdk.errors import UsageError
from edge_sdk.label_names import JOIN, label_key

NO_LABEL = ("", "unlabelled", "nan", "?", "sleep stage ?")
"""What the cell of a sample without a label says: nothing, the word that `auscult record` writes, what libraries of
tables write for nothing, or what somebody who scores writes for what cannot be scored (the last one is of EDF+)."""
UNLABELLED = -1
"""Code of a sample without a label."""
LABEL_NAMES = ("activity", "label", "class", "labels", "activities", "target", "annotation", "event", "state")
"""Names of the label column, the likely ones first, where nobody has said which it is."""


def join_labels(label: str, separator: str) -> str:
    """A set of labels with JOIN between them, each without spaces around it, as `clean_label` leaves a name."""
    if separator == JOIN:
        return label
    if JOIN in label:
        how = f"expected {separator!r} between labels, or no separator stated where it is {JOIN!r}"
        raise UsageError(f"label {label!r} with separator {separator!r}: no label may have a {JOIN!r} in it; {how}")
    return JOIN.join(part.strip() for part in label.split(separator))


def is_missing(label: str, missing: Collection[str] = ()) -> bool:
    """Does a clean label say that nobody knows? `missing`: further words that do."""
    return label_key(label) in NO_LABEL or label in missing


def fold_labels(counts: Mapping[str, int], known: Iterable[str] = ()) -> dict[str, str]:
    """The class that each label is of: labels with one `label_key` are one.

    Args:
        counts: clean label -> samples that have it.
        known: names of classes, whose spelling is taken; of others the one that most samples have,
            of equals that in lower case.
    """
    spelled: dict[str, str] = {}
    for name in sorted(counts, key=lambda name: (-counts[name], name != name.lower(), name)):
        spelled.setdefault(label_key(name), name)
    spelled |= {label_key(name): name for name in known}
    return {name: name if name in {*known} else spelled[label_key(name)] for name in counts}


def describe_folds(folds: Mapping[str, str]) -> str:
    """A sentence on labels that became another; "": none did."""
    changed = [f"{one!r} is {other!r}" for one, other in sorted(folds.items()) if one != other]
    return f"labels: {', '.join(changed)}" if changed else ""


def join_classes(names: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Classes of several files, sorted, one for names with one `label_key`: the spelling of most files."""
    counts: dict[str, int] = {}
    for some in names:
        for name in some:
            counts[name] = counts.get(name, 0) + 1
    return tuple(sorted({*fold_labels(counts).values()}))
