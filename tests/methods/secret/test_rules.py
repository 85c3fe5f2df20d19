"""What a hospital, a device or a kill could do to have something opened that must stay closed, and why it cannot."""

from dataclasses import replace

import numpy as np
import pytest

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.errors import EncodeError, PeerError, UsageError
from edge_sdk.methods.augfl.messages import Counted
from edge_sdk.methods.integers.vectors.messages import Integers
from edge_sdk.methods.integers.vectors.rungs import RUNGS
from edge_sdk.methods.secret.messages.forms import PLAIN_NAMES, Flat, NumbersKind, ScoresKind
from edge_sdk.methods.secret.messages.masking import context_of, put_on, ring_type
from edge_sdk.methods.secret.messages.messages import Masked, MaskedSum, NumberedQuestion, TooFew
from edge_sdk.methods.secret.messages.upload_form import UploadKind
from edge_sdk.methods.secret.to_aggregator.aggregator import NotSummed
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.aggregation.guard import Refused
from edge_sdk.methods.shared.evaluation.evaluation import Progress, Report, Scores
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.nodes.secrets.masks import RunMasks
from edge_sdk.wire.codec.codec import Codec
from tests.methods.problems import HASTY, LAYOUT, PATIENT, play, told
from tests.methods.secret.parties import KEYS, PUBLIC, TREE, WatchedMasks, envs_for, masks_of, run_of

RUN = run_of(rounds=3)
METHOD, SETTINGS, ENVS = method_of(RUN), settings_of(RUN), envs_for(RUN)
CALM = NetworkFaults(repeat=0.0)


def played(method=METHOD, run=RUN, **more):
    given = {"policies": PATIENT, "tree": TREE, "envs": envs_for(run), "faults": CALM} | more
    return play(method, settings_of(run), run.rounds, **given)


_, TRANSCRIPT = played()
ANSWERS = [(a, m) for a, _, m in TRANSCRIPT.crossed if isinstance(m, Masked)]
SUMS = [m for a, _, m in TRANSCRIPT.crossed if isinstance(m, MaskedSum) and a == "h0"]
QUESTIONS = [m for _, b, m in TRANSCRIPT.crossed if isinstance(m, NumberedQuestion) and b == "d1"]


# A hospital that lies -------------------------------------------------------------------------------------------
def lying(change):
    """What the aggregator says of a hospital h0 that changes its sum of the second round, and the devices it counted.

    `change`: (sum, device -> its masked answer of that round) -> the sum that is sent.
    """
    seen = {}

    def receive(env, s, sender, m):
        if env.me == "h0" and isinstance(m, Masked):
            seen[sender, s.ticket] = m
        return METHOD.hospital.receive(env, s, sender, m)

    def close(env, s):
        ticket = s.ticket
        s, sends = METHOD.hospital.close(env, s)
        if env.me != "h0" or ticket != 2:
            return s, sends
        answers = {d: m for (d, t), m in seen.items() if t == ticket}
        return s, [replace(e, message=change(e.message, answers, seen)) if e.to == UP else e for e in sends]

    hospital = replace(METHOD.hospital, receive=receive, close=close)
    _, transcript = played(replace(METHOD, hospital=hospital))
    rounds = [p.devices for p in told(transcript, Progress)]
    return " ".join(m.reason for m in told(transcript, Refused)), rounds


def added(m, one, sign=1):
    """The sum with one more answer in it, or one less."""
    count = rounding.unpack(m.steps, lengths(m), m.width).astype(np.int64)
    steps = count + sign * rounding.unpack(one.steps, lengths(m), m.width).astype(np.int64)
    steps = (steps % (1 << m.width)).astype(np.uint32)
    words = m.words + one.words if sign > 0 else m.words - one.words
    return replace(m, steps=rounding.pack(steps, m.width), words=words)


def lengths(m):
    return m.form.size + RUNGS + len(PLAIN_NAMES)


def without(m, name):
    """The names and tags of a sum, but for one."""
    at = m.names.index(name)
    names, tags = m.names[:at] + m.names[at + 1 :], np.delete(m.tags.reshape(-1, 16), at, 0).reshape(-1)
    return replace(m, names=names, tags=tags)


LIES = {
    "it names a device whose answer is not in the sum": lambda m, mine, seen: added(m, mine["d1"], -1),
    "it leaves out the name of one that is": lambda m, mine, seen: without(m, "d1"),
    "it counts one twice": lambda m, mine, seen: added(m, mine["d1"]),
    "it counts one in the place of another": lambda m, mine, seen: added(added(m, mine["d1"], -1), mine["d2"]),
    "it adds an answer of an earlier round": lambda m, mine, seen: added(added(m, mine["d1"], -1), seen["d1", 1]),
    "it says another scale": lambda m, mine, seen: replace(m, form=replace(m.form, half=2 * m.form.half)),
    "it says another tag": lambda m, mine, seen: replace(m, tags=m.tags ^ np.uint8(1)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_hospital_is_found_out(lie):
    said, rounds = lying(LIES[lie])
    assert "do not open it" in said and rounds == [6, 3, 6]


def test_what_a_lying_hospital_can_do_is_a_sum_within_bounds():
    """Numbers can be shifted unseen, as far as so many devices could have shifted them by themselves."""

    def shift(m, mine, seen):
        steps = rounding.unpack(m.steps, lengths(m), m.width).copy()
        steps[: m.form.size] += np.uint32(1)
        return replace(m, steps=rounding.pack(steps & np.uint32((1 << m.width) - 1), m.width))

    assert lying(shift) == ("", [6, 6, 6])


def test_who_is_beyond_bounds_voids_the_sum():
    def shift(m, mine, seen):
        steps = rounding.unpack(m.steps, lengths(m), m.width).copy()
        steps[: m.form.size] += np.uint32(3 * rounding.largest(8))
        return replace(m, steps=rounding.pack(steps & np.uint32((1 << m.width) - 1), m.width))

    said, rounds = lying(shift)
    assert "beyond what 3 uploads of 8 bits add up to" in said and rounds == [6, 3, 6]


# Openings -------------------------------------------------------------------------------------------------------
def aggregator(asked=1):
    """The aggregator's role in the state after so many questions, with its env."""
    env = replace(ENVS["aggregator"], me="aggregator", here=tuple(TREE))
    s, _ = METHOD.aggregator.start(env)
    return replace(env, asked=asked), s


def refusal(env, s, m, sender="h0"):
    after, sends = METHOD.aggregator.receive(env, s, sender, m)
    return " ".join(e.message.reason for e in sends if isinstance(e.message, Refused)), after


def test_a_sum_is_opened_once_whatever_comes_later():
    env, s = aggregator()
    why, s = refusal(env, s, SUMS[0])
    assert why == "" and s.opened == {"h0": ("d0", "d1", "d2")}
    smaller = without(SUMS[0], "d1")
    why, after = refusal(env, s, smaller)
    assert "was opened already; they differ by d1" in why and after.opened == s.opened
    assert "was opened already" in refusal(env, s, SUMS[0])[0]


def test_what_was_opened_is_saved():
    env, s = aggregator()
    s = refusal(env, s, SUMS[0])[1]
    records = Codec([METHOD.aggregator.state, *METHOD.messages], layout=LAYOUT, finite=False)
    again = records.decode(records.encode(s))
    assert "was opened already" in refusal(env, again, without(SUMS[0], "d2"))[0]


def test_after_a_backup_what_was_asked_before_is_opened_no_more():
    """The number of the latest question has leapt, and nobody remembers what was opened of the one that is open."""
    env, s = aggregator()
    assert "and 4294967297 is open" in refusal(replace(env, asked=1 + 2**32), s, SUMS[0])[0]


@pytest.mark.parametrize("change", [dict(ticket=2), dict(ticket=7)])
def test_a_sum_of_another_question_is_not_opened(change):
    env, s = aggregator()
    assert "is open" in refusal(env, s, replace(SUMS[0], **change))[0]


def test_a_sum_of_too_few_is_not_opened():
    env, s = aggregator()
    one = without(without(SUMS[0], "d1"), "d2")
    assert "none is opened of less than 2" in refusal(env, s, one)[0]


@pytest.mark.parametrize(
    "names", [("d0", "d1", "\x1b[2J"), ("d0", "d1", "x" * 65), ("", "d0", "d1"), ("d1", "d0", "d2")]
)
def test_what_are_no_names_are_refused(names):
    with pytest.raises(ValueError, match="names"):
        replace(SUMS[0], names=names).check(LAYOUT)


def test_a_device_is_in_one_hospitals_sum_only():
    env, s = aggregator()
    s = refusal(env, s, SUMS[0])[1]
    assert "who is in that of h0" in refusal(env, s, without(SUMS[0], "d0"), "h1")[0]


def test_a_device_without_a_key_is_found():
    env, s = aggregator()
    stranger = replace(SUMS[0], names=("d0", "d1", "dx"))
    assert "a sum with dx, of whom there is no key" in refusal(env, s, stranger)[0]


def test_who_stays_away_costs_nothing_and_too_few_are_no_sum():
    """Two of h0's devices are away for a while: their round goes on with h1, and nobody is asked for anything."""
    away = {"d1": [(2.0, 12.0)], "d2": [(2.0, 12.0)]}
    run = run_of(rounds=6)
    faults = NetworkFaults(repeat=0.0, delay=(0.1, 0.2), away=away)
    _, transcript = played(method_of(run), run, policies=HASTY, faults=faults)
    assert {p.devices for p in told(transcript, Progress)} == {3, 6}
    few = [m for a, _, m in transcript.crossed if isinstance(m, TooFew) and a == "h0"]
    assert few and {m.devices for m in few} == {1}
    assert (
        told(transcript, NotSummed)[0].to_sentence() == "h0: 1 devices have answered, and a sum is made of 2 at least"
    )
    assert len(told(transcript, Report)) == 1


# Devices --------------------------------------------------------------------------------------------------------
def answer(question, epochs=1, masks=None):
    """d1's answer, from a new disk, with training that depends on `epochs`."""
    env = replace(ENVS["d1"], me="d1", settings=replace(SETTINGS, local_epochs=epochs))
    env = env if masks is None else replace(env, masks=masks)
    s, _ = METHOD.device.start(env)
    _, sends = METHOD.device.receive(env, s, UP, question)
    return next(e.message for e in sends if e.to == UP)


def test_two_answers_to_one_question_never_have_one_mask():
    """Killed before it was saved, put back from a backup, or asked again by a hospital that lies: the same answer has
    the same bytes, another one another mask. With a nonce that forgets the answer, the watcher would say so."""
    watch = WatchedMasks(masks_of("d1"))
    first, again, other = (answer(QUESTIONS[0], epochs, watch) for epochs in (1, 1, 2))
    assert first.tag.tobytes() == again.tag.tobytes() and first.steps.tobytes() == again.steps.tobytes()
    assert first.tag.tobytes() != other.tag.tobytes() and len(watch.used) == 2 and not watch.reused()
    forgetful = WatchedMasks(masks_of("d1"), forgetful=True)
    for epochs in (1, 2):
        answer(QUESTIONS[0], epochs, forgetful)
    assert forgetful.reused()


@pytest.mark.parametrize("words", [(3, 2**60, 3), (3, 2**63, 3), (3, 9, 2**64 - 1)])
def test_a_masked_count_that_nobody_can_have_opens_no_sum(words):
    """One liar puts what it likes into a word: a sum beyond what a message may say would stop the node that sends it
    on."""
    kind = NumbersKind(Counted)
    form = kind.form(ENVS["d1"], Counted(0, 1))
    with pytest.raises(PeerError, match="no sum of 3 answers"):
        kind.restore(form, 3, Flat(np.zeros(0, np.uint32), np.array(words, np.uint64)), 2)


def test_the_aggregator_cannot_try_out_what_a_device_has_sent():
    """Tags travel to the aggregator. It knows all that they are made of but the device's own key."""
    kind, env = NumbersKind(Counted), replace(ENVS["d1"], me="d1")
    sent = put_on(env, kind, 3, 3, Counted(17, 1)).tag.tobytes()
    context = context_of(3, "d1", form := kind.form(env, Counted(0, 1)), kind.width(form, 3))
    for flat in [kind.flatten(form, Counted(samples, 1)) for samples in range(20)]:
        value = flat.steps.astype(ring_type(kind.width(form, 3))).tobytes() + flat.words.astype("<u8").tobytes()
        assert masks_of("aggregator").tag("d1", context, value) != sent


def test_the_same_answer_has_the_same_tag_whatever_a_device_has_forgotten_and_another_elsewhere():
    def tag(device="d1", run="r", above="aggregator"):
        return RunMasks(KEYS[device], lambda: {UP: PUBLIC[above]}, run).tag(UP, b"context", b"value")

    assert tag() == tag()
    assert len({tag(), tag(device="d2"), tag(run="other"), tag(above="d3")}) == 4


def test_another_number_is_another_mask():
    asked = [replace(QUESTIONS[0], ticket=ticket) for ticket in (1, 2, 1 + 2**32)]
    assert len({answer(m).steps.tobytes() for m in asked}) == 3


def test_a_hospital_sees_noise():
    """Every step of the ring is about as frequent, and no two devices or rounds have an answer in common."""
    uploads = [m for _, m in ANSWERS if m.form.bits == 8]
    steps = np.concatenate([rounding.unpack(m.steps, lengths(m), m.width) for m in uploads])
    counts = np.bincount(steps >> np.uint32(uploads[0].width - 4), minlength=16)
    assert abs(counts / counts.mean() - 1).max() < 6 / counts.mean() ** 0.5, "beyond six standard deviations"
    words = np.concatenate([m.words for _, m in ANSWERS])
    assert len(set(words.tolist())) == words.size


def test_nothing_readable_can_leave():
    codec = Codec(METHOD.messages, layout=LAYOUT)
    for m in (Scores(1, {"devices": 1.0}), Integers(None, (), 0, 8, 1.0, 1, 0.0, np.zeros(0, np.uint8))):
        with pytest.raises(EncodeError):
            codec.encode(m)


def test_a_question_without_a_number_is_not_answered():
    env = replace(ENVS["d1"], me="d1")
    s, _ = METHOD.device.start(env)
    with pytest.raises(PeerError, match="without a number"):
        METHOD.device.receive(env, s, UP, QUESTIONS[0].question)


def test_who_has_no_keys_does_not_begin():
    with pytest.raises(UsageError, match="no keys"):
        METHOD.aggregator.start(replace(ENVS["aggregator"], masks=None))
    env = replace(ENVS["d1"], me="d1", masks=None)
    s, _ = METHOD.device.start(env)
    with pytest.raises(UsageError, match="no keys"):
        METHOD.device.receive(env, s, UP, QUESTIONS[0])


# A device that answers first ------------------------------------------------------------------------------------
def hospital_asked(question):
    """h0's role after a question, and its env."""
    env = replace(ENVS["h0"], me="h0", here=TREE["h0"])
    s, _ = METHOD.hospital.start(env)
    return env, METHOD.hospital.receive(env, s, UP, question)[0]


def crossed_first(kind):
    """The first question whose answers are of a kind, and the answers of h0's devices to it."""
    crossed = [(a, b, m) for a, b, m in TRANSCRIPT.crossed if {a, b} & {"h0", *TREE["h0"]}]
    at = next(i for i, (_, b, m) in enumerate(crossed) if isinstance(m, Masked) and m.form.kind == kind)
    question = [m for _, b, m in crossed[:at] if b == "h0" and isinstance(m, NumberedQuestion)][-1]
    answers = {a: m for a, b, m in reversed(crossed) if isinstance(m, Masked) and m.form.kind == kind}
    return question, answers


@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        ("Sum", {"round": 7}),
        ("Scores", {"size": 1}),
        ("Scores", {"half": 1.0}),
        ("Scores", {"bits": 9}),
        ("Scores", {"there": ("total",)}),
    ],
)
def test_who_answers_first_does_not_say_what_an_answer_looks_like(kind, odd):
    """One device that was quick once had all its siblings refused, round after round, until they were suspended."""
    question, answers = crossed_first(kind)
    env, s = hospital_asked(question)
    first = answers["d0"]
    form = replace(first.form, **odd)
    steps, words = plan_kinds()[kind].lengths(form)
    octets = rounding.packed_size(steps, first.width)
    lie = replace(first, form=form, steps=np.zeros(octets, np.uint8), words=np.zeros(words, np.uint64))
    with pytest.raises(PeerError, match="expected"):
        METHOD.hospital.receive(env, s, "d0", lie)
    s, _ = METHOD.hospital.receive(env, s, "d1", answers["d1"])
    assert set(s.pending.tags) == {"d1"}


def plan_kinds():
    return {"Sum": UploadKind({gather.Sum: ("total",)}), "Scores": ScoresKind()}
