"""HSGD's messages between hospital and device as integers: what they stand for, and what a run with them comes to."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from edge_sdk.algebra.vectors import EMPTY_LAYOUT
from edge_sdk.contract.loopback import ROOT, NetworkFaults
from edge_sdk.contract.method import UP
from edge_sdk.errors import AuscultError, PeerError, UsageError
from edge_sdk.methods.hsgd import compression
from edge_sdk.methods.hsgd.messages import (
    Embed,
    EmbedByIntegers,
    Embedding,
    Moved,
    Train,
    Trained,
    open_matrix,
)
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.hsgd.row_integers import (
    BLOCK,
    RowIntegers,
    join_rows,
    pack_rows,
    pack_vector,
    read_rows,
    read_vector,
)
from edge_sdk.methods.hsgd.settings import Settings
from edge_sdk.wire.codec.codec import Codec
from tests.methods.hsgd.hsgd_runs import BASIC
from tests.methods.hsgd.split_problems import BIG, play, theta

X = np.random.default_rng(0).normal(size=(5, 37))
CODEC = Codec([Embedding], layout=EMPTY_LAYOUT, dtype=np.float64)


def dice(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("bits", [2, 3, 8, 12])
def test_a_number_becomes_a_step_beside_it_and_on_average_itself(bits: int) -> None:
    step = (X.max(1) - X.min(1)) / (2**bits - 1)
    found = np.stack([read_rows(pack_rows(X, bits, dice(seed))) for seed in range(400)])
    assert (np.abs(found - X) <= step[:, None] + 1e-9).all()
    assert (np.abs(found.mean(0) - X) <= 0.15 * step[:, None]).all(), "three deviations of a mean of 400"
    assert (read_rows(pack_rows(np.full((2, 3), 1.5), bits, dice())) == 1.5).all()


@pytest.mark.parametrize("size", [1, 7, BLOCK, BLOCK + 1, 1000])
def test_a_vector_has_a_scale_for_each_block(size: int) -> None:
    x = dice().normal(size=size)
    x[-1] *= 100
    packed = pack_vector(x, 10, dice())
    found = read_vector(packed, size, "theta_2")
    near = slice(0, size // BLOCK * BLOCK if size % BLOCK else 0)
    assert found.shape == x.shape and np.abs(found - x)[near].max(initial=0.0) < 0.01
    with pytest.raises(PeerError, match="theta_2 of"):
        read_vector(packed, size + BLOCK, "theta_2")


def test_a_message_takes_as_many_bits_as_it_says() -> None:
    matrix = np.zeros((10, 64), np.float32)
    assert [pack_rows(matrix, bits, dice()).packed.size for bits in (2, 4, 8, 16)] == [160, 320, 640, 1280]
    assert compression.true_bits(pack_rows(matrix, 4, dice())) == 10 * (64 + 4 * 64)
    assert compression.shape(pack_rows(matrix, 4, dice())) == (10, 64)


def test_a_few_numbers_take_as_many_bytes_and_few_more() -> None:
    """One sample's zeta_2 of the model for ESR: two scales and 16 integers of two bits are 12 bytes; floats were 96."""
    one = np.random.default_rng(0).normal(size=(1, 16)).astype(np.float32)
    codec = Codec([Embedding], layout=EMPTY_LAYOUT)
    assert len(codec.encode(Embedding(pack_rows(one, 2, dice())))) <= 40
    assert len(codec.encode(Embedding(compression.pack(one)))) == 96


@pytest.mark.parametrize("rows", [0, 1, 5, 400])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_integers_survive_the_codec(rows: int, dtype: type) -> None:
    whole = pack_rows(np.random.default_rng(0).normal(size=(rows, 37)).astype(dtype), 3, dice())
    found = CODEC.decode(CODEC.encode(Embedding(whole))).zeta_2
    assert (found.low == whole.low).all() and (found.step == whole.step).all() and (found.packed == whole.packed).all()
    assert read_rows(found).shape == (rows, 37) and (read_rows(found) == read_rows(whole)).all()
    assert isinstance(found.octets, bytes) == (rows < 10)


def test_a_matrix_is_read_as_the_one_that_was_packed() -> None:
    whole = pack_rows(X, 3, dice())
    found = CODEC.decode(CODEC.encode(Embedding(whole))).zeta_2
    assert type(found) is RowIntegers and (read_rows(found) == read_rows(whole)).all()
    assert (open_matrix(found, 5, 37, "zeta_2") == read_rows(whole)).all()
    one = pack_rows(np.ones((1, 2 * BLOCK)), 4, dice())
    assert open_matrix(one, 1, 2 * BLOCK, "zeta_2").shape == (1, 2 * BLOCK), "one sample is no vector in blocks"


GOOD = pack_rows(X, 3, dice())


def rows_of(**other: np.ndarray) -> RowIntegers:
    """GOOD with other arrays in it."""
    return join_rows(**{"low": GOOD.low, "step": GOOD.step, "packed": GOOD.packed} | other, columns=37, bits=3)


@pytest.mark.parametrize(
    "bad",
    [
        replace(GOOD, bits=1),
        replace(GOOD, bits=17),
        replace(GOOD, columns=36),
        replace(GOOD, columns=-1),
        replace(GOOD, rows=-1),
        replace(GOOD, rows=4),
        rows_of(step=-GOOD.step),
        rows_of(low=np.full(5, np.nan)),
        rows_of(packed=GOOD.packed[:-1]),
        replace(GOOD, octets=b""),
    ],
)
def test_integers_of_a_peer_are_checked(bad: RowIntegers) -> None:
    with pytest.raises(AuscultError):
        CODEC.decode(CODEC.encode(Embedding(bad)))


# Runs -----------------------------------------------------------------------------------------------------------
CALM = NetworkFaults(repeat=0.0)


def numbers_in(message: object) -> int:
    """Floats in a message, without scales and what is not a vector."""
    if isinstance(message, RowIntegers):
        return 0
    if isinstance(message, np.ndarray):
        return int(message.size) if message.dtype.kind == "f" else 0
    return sum(numbers_in(getattr(message, f.name)) for f in fields(message)) if is_dataclass(message) else 0  # type: ignore[arg-type]


def ended(bits: int, rounds: int = 12, **more: object) -> tuple[np.ndarray, object]:
    net, transcript = play(BIG, replace(BASIC, bits=bits, **more), rounds, faults=CALM)
    return theta(net), transcript


@pytest.mark.parametrize(("bits", "near"), [(16, 1e-3), (8, 0.03), (4, 0.4)])
def test_a_run_with_integers_ends_near_the_one_with_floats(bits: int, near: float) -> None:
    floats, (whole, transcript) = ended(0)[0], ended(bits)
    assert np.linalg.norm(whole - floats) < near * np.linalg.norm(floats)
    between = [m for a, b, m in transcript.crossed if ROOT not in (a, b)]  # type: ignore[attr-defined]
    vertical = [m for m in between if isinstance(m, EmbedByIntegers | Embedding | Train | Moved)]
    assert {type(m) for m in vertical} == {EmbedByIntegers, Embedding, Train, Moved}
    assert not [m for m in between if isinstance(m, Embed | Trained)] and not sum(map(numbers_in, vertical))


def test_rounding_of_what_is_shown_does_not_stay_in_the_model() -> None:
    """Devices that do not move: theta_2 of the group stays what it is, with the coarsest integers."""
    net, _ = play(BIG, replace(BASIC, bits=2, eta=0.0), 3, faults=CALM)
    np.testing.assert_allclose(theta(net), net.nodes[ROOT].env.theta0, atol=1e-12)


def test_the_same_question_has_the_same_answer_to_the_bit() -> None:
    """A call that is made again after a kill sends the same bytes."""
    net, transcript = play(BIG, replace(BASIC, bits=3), 1, faults=CALM)
    codec = Codec(HSGD.messages, layout=net.nodes[ROOT].env.layout, dtype=np.float64)
    asked = [m for _, to, m in transcript.crossed if to == "d0" and isinstance(m, EmbedByIntegers | Train)]
    env, found = replace(net.nodes["d0"].env, me="d0"), []
    for _ in range(2):
        state = HSGD.device.start(env)[0]
        for m in asked[:2]:
            state, sends = HSGD.device.receive(env, state, UP, m)
            found.append(codec.encode(sends[0].message))
    assert found[:2] == found[2:] and found[0] != found[1]


def test_a_question_with_floats_is_refused_in_a_run_with_integers_and_the_other_way_round() -> None:
    for bits, other in ((3, 0), (0, 3)):
        net, transcript = play(BIG, replace(BASIC, bits=bits), 1, faults=CALM)
        question = next(m for _, to, m in transcript.crossed if to == "d0" and isinstance(m, Embed | EmbedByIntegers))
        env = replace(net.nodes["d0"].env, me="d0", settings=replace(BASIC, bits=other))
        with pytest.raises(PeerError, match=f"this run has bits = {other}"):
            HSGD.device.receive(env, HSGD.device.start(env)[0], UP, question)


def test_the_pretraining_measures_with_floats() -> None:
    _, transcript = play(BIG, replace(BASIC, bits=4, pretraining=2, pretraining_eta=0.1), 4, faults=CALM)
    kinds = [type(m) for a, b, m in transcript.crossed if a == "d0" or b == "d0"]
    assert Trained in kinds and Moved in kinds and kinds.index(Moved) > kinds.index(Trained)
    assert Trained not in kinds[kinds.index(Moved) :]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"bits": 1}, "bits = 1: 0, or 2 to 16"),
        ({"bits": 4, "levels": 8}, "one of them"),
        ({"bits": 4, "keep": 0.5}, "one of them"),
        ({"bits": 4, "copies": "pair"}, "devices keep theta_2"),
    ],
)
def test_settings_are_checked(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Settings(**wrong)  # type: ignore[arg-type]
