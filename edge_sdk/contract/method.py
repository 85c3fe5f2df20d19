"""What a method is: three roles, each three pure functions over plain data, and two more where somebody keeps count.

    start(env)                           -> state, sends     the node comes up for the first time
    receive(env, state, sender, message) -> state, sends     one message that counts (see round.py)
    close(env, state)                    -> state, sends     enough have answered, or the time is up
    refuse(env, state, sender, why)      -> state, sends     a child's message that could not be read or counted
    renew(env, state, sender)            -> state, sends     a child comes that knows nothing, with a new disk or late

`env` is what the node is given and never changes in a run; `state` is what it remembers, and is what is saved. Both are
frozen dataclasses; a role never changes an argument in place. `sender` is UP, ME or a child's name. There is no clock,
thread, socket, log or random generator in a role: randomness derives from (run seed, round, node).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol
from zlib import crc32

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.ensemble import Ensemble
from edge_sdk.algebra.secure_aggregation.privacy import total_epsilon
from edge_sdk.algebra.vectors import EMPTY_LAYOUT, Layout, Vector
from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.environment.gradients import GradientCounter
from edge_sdk.contract.environment.masks import Masks
from edge_sdk.contract.environment.samples import Labelled, OwnWindows, SelfLabels
from edge_sdk.contract.environment.sharing import MaskReader, SecretKeeper
from edge_sdk.contract.method_defaults import any_rule, changeable, never, no_sums, no_warnings
from edge_sdk.contract.own_noise import OwnNoise
from edge_sdk.contract.round import Policy, barriers
from edge_sdk.contract.run import DOWN as DOWN
from edge_sdk.contract.run import ME as ME
from edge_sdk.contract.run import OUT as OUT
from edge_sdk.contract.run import UP as UP
from edge_sdk.contract.search import SearchSpace
from edge_sdk.contract.traffic import VectorTraffic

Scorer = Callable[[Vector], Mapping[str, float]]
"""theta -> sums over some samples."""
Forward = Callable[[Any, Any, str, bool], Any]
Movement = Callable[[Any, Any, Any], tuple[Vector, Vector]]
"""(env, question, upload) -> by how much the sender's own vector (k,) moves if it is counted; all that moves (j,)."""

KEPT_BESIDE = "the model that each device keeps for itself beside the global one"


@dataclass(frozen=True)
class Send:
    """A message that a role wants to be sent.

    Attributes:
        to: UP, DOWN, ME, OUT, the name of one child, or the names of several (encoded once; may be nobody).
        message: a frozen dataclass that the method declares in `Method.messages` (for OUT: any object).
        answer: downward only: every receiver owes exactly one message in return. Without it this is a notice.
        lasts: of a notice: seconds after which it is not worth sending any more.
        all: downward only: the round is over when all that are asked have answered, even if its policy needs fewer.
    """

    to: str | tuple[str, ...]
    message: Any
    answer: bool = True
    lasts: float = inf
    all: bool = False


def ask_nobody(message: Any) -> Send:
    """A question to nobody. No answer to it is owed, so the round is over at once, and the role's `close` is called.
    With a quorum in its policy that takes a minute (round.py: EMPTY), and debts that the policy keeps still stand."""
    return Send((), message)


Step = tuple[Any, Sequence[Send]]


@dataclass(frozen=True)
class Role:
    """The functions of one tier, and the type of its state (what a store must be able to write).

    `refuse` and `renew` are left out by roles that do not care. `refuse` may send to OUT only, `renew` no question;
    what it sends takes the place of the notices that the child has not acknowledged.
    """

    start: Callable[[Any], Step]
    receive: Callable[[Any, Any, str, Any], Step]
    close: Callable[[Any, Any], Step]
    state: Any
    refuse: Callable[[Any, Any, str, str], Step] | None = None
    renew: Callable[[Any, Any, str], Step] | None = None


class StepKeeper(Protocol):
    """Keeper of the progress of a long call, so that the same call, made again, goes on where it was left.

    A loop of training steps says which arrays it changes, and after each step how many there have been. Everything else
    in a call is computed again, to the same bits.
    """

    def begin(self, arrays: Sequence[Vector], random: np.random.Generator | None) -> tuple[int, float]:
        """A loop begins that changes these arrays and this generator in place; they are put to where they were left.

        Returns:
            Steps that are done, and the sum of their losses.
        """
        ...

    def note(self, steps: int, losses: float) -> None:
        """So many steps are done, with that sum of losses."""
        ...

    def end(self) -> None:
        """The loop is over."""
        ...


@dataclass(frozen=True, kw_only=True)
class NodeEnv:
    """What every env has. A method adds fields of its own by subclassing, and names its settings' type.

    Attributes:
        me: name of the node; filled in by the node at each call.
        seed: of the run; equal on all nodes.
        rounds: global rounds in the run.
        layout: where each parameter lies in theta.
        theta0: initial model, float (n,).
        settings: the method's own hyper-parameters.
        asked: number of this node's latest question, 0 before the first; filled in by the node at each call.
        here: children connected now; filled in by the node at each call.
        sizes: child -> number of devices behind it (aggregator: its hospitals; hospital: 1 for each device).
        limits: what this node's settings allow its children.
        unwilling: children that want no training now; filled in by the node at each call.
        grad_fn: device: (theta, indices or None for all) -> (mean loss, its gradient (n,)) over the training samples.
        samples: device: how many training samples it has.
        least: device: how many of them a step needs; 2 where they are normalised with each other.
        augmented: device: as grad_fn, with samples that each call changes by a generator; None: this run does not.
        gradients: device: counts those that it computes.
        own_classes: device: codes of the classes that it has had labels of, in training or in validation.
        earlier: device: name -> theta (n,) of the models that an earlier run has left on it, "personal" and "global" as
            a rule; empty: there are none that fit, or it is to begin anew. For `start` only.
        keeper: device: keeps the progress of its training; None: nobody does.
        score: device: theta -> sums on its validation samples or, where none were split off, on its test samples: at
            least "samples"; usually also "loss" and "correct".
        judge: device: the same with more in it, for evaluations; None: score.
        test: device: as judge, on its test samples, for the last evaluation only; None: `score` is on them already.
        validation: device: samples that choices are made on; None: none were split off (an empty part is no None).
        held_out: device: its test samples; None: this model has no classes, or the device no such samples.
        own: device: its samples as features, labelled or not, in a run that settles; None: no features are known.
        self_labels: device: those that `grad_fn` has beside its labelled samples; None: it has none.
        untaught: device: this env as it was before it had such labels; None: it has none.
        swapped: device: its env -> the same with training and validation samples changed over; None: one of the two
            parts is too small to train on, or the run does not settle on classes.
        feature_means: device: () -> means (F,) and means of squares (F,) of what the model standardises, over all its
            training samples, labelled or not; None: the model standardises nothing.
        walked: device: keeps what settling has trained, which is asked for twice; None: it is trained again.
        outputs: device, hospital: classes that its model tells apart, which may be more than the run's; 0: none.
        masks: device, aggregator: what hides an upload in a run with secret sums; None: this run has none.
        secrets: device: keeps what it shares with other devices, where these open sums; None: they do not.
        reader: hospital: makes masks of what its devices have told, in such a run.
        allowed: device: an answer -> as much of it as its holder lets leave, for answers that are masked, where nobody
            can take anything out afterwards; None: all of it.
        entropy: device: count -> so many bytes that nobody can guess, for noise; None: there is none.
        accountant: aggregator: (rho of a sum -> how many such sums, delta) -> epsilon (secure_aggregation/privacy.py).
    """

    # The run, on every tier
    me: str = ""
    seed: int = 0
    rounds: int = 1
    layout: Layout = EMPTY_LAYOUT
    theta0: Vector = field(default_factory=lambda: np.zeros(0, np.float32))
    settings: Any = None
    asked: int = 0
    # Children: hospital, aggregator
    here: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    unwilling: tuple[str, ...] = ()
    # Training and its samples: device
    grad_fn: Callable[[Vector, Any], tuple[float, Vector]] | None = None
    samples: int = 0
    least: int = 1
    augmented: Callable[[Vector, Any, np.random.Generator], tuple[float, Vector]] | None = None
    gradients: GradientCounter = field(default_factory=GradientCounter, compare=False)
    own_classes: tuple[int, ...] = ()
    earlier: Mapping[str, Vector] = field(default_factory=dict)
    keeper: StepKeeper | None = None
    # Judging: device
    score: Scorer | None = None
    judge: Scorer | None = None
    test: Scorer | None = None
    validation: Labelled | None = None
    held_out: Labelled | None = None
    # Settling and self-labels: device
    own: OwnWindows | None = None
    self_labels: SelfLabels | None = None
    untaught: NodeEnv | None = None
    swapped: Callable[[Any], Any] | None = None
    feature_means: Callable[[], tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] | None = None
    walked: dict[Any, Vector] | None = None
    outputs: int = 0
    # Secret sums and noise
    masks: Masks | None = None
    secrets: SecretKeeper | None = None
    reader: MaskReader | None = None
    allowed: Callable[[Any], Any] | None = None
    entropy: Callable[[int], bytes] | None = None
    accountant: Callable[[Mapping[float, int], float], float] = total_epsilon

    @property
    def willing(self) -> tuple[str, ...]:
        """Children that are here and may be asked to train."""
        return tuple(child for child in self.here if child not in self.unwilling) if self.unwilling else self.here

    @property
    def labelled(self) -> int:
        """Training samples without those that this device labelled itself: what its uploads count with."""
        return (self.untaught or self).samples

    @property
    def devices(self) -> int:
        """M: how many devices there are behind this node's children, whether here or not."""
        return sum(self.sizes.values())

    def random(self, round: int, *purpose: int) -> np.random.Generator:
        """The generator of this node for one purpose in one round: equal wherever and whenever it is made."""
        return np.random.default_rng(as_words([self.seed, round, crc32(self.me.encode()), *purpose]))


def as_words(numbers: Sequence[int]) -> Sequence[int] | npt.NDArray[np.uint32]:
    """Numbers for the seed of a generator, as the words that numpy makes of them: one by one that takes it longer than
    to seed. A number of more than one word stays for numpy to cut."""
    fits = min(numbers) >= 0 and max(numbers) < 2**32
    return np.array(numbers, np.uint32) if fits else numbers


@dataclass(frozen=True)
class Method:
    """A published method on this runtime.

    Attributes:
        name: what a run file calls it.
        device, hospital, aggregator: its three roles.
        messages: every type that may cross a wire. Nothing else can leave a node.
        settings: frozen dataclass of hyper-parameters with defaults; checks itself in `__post_init__` (UsageError).
        env: the `NodeEnv` subclass that its roles are given.
        show: (env, aggregator state) -> a declared message with the model as it is now, for evaluation.
        models: (env, device state, that message) -> {"global": theta, ...}: the models that a device can judge.
        summary: what it is, in a line for people who choose one; a console offers it without a line where it is empty.
        personal: what its personal models are, after "Personalised is"; empty: `models` gives none.
        warnings: (settings, sizes) -> sentences about settings that run, but beyond what the paper covers.
        private_warnings: as `warnings`, with the curvature of the aggregator's private regulariser behind; None: it
            makes no difference.
        policies: arguments of `barriers` -> tier -> when its rounds are over.
        kernels: the family of functions that its nodes are given: "plain" (a whole model on each device), "split" (its
            parts at different nodes), "outputs" (devices of any architecture, which compare outputs) or "companions"
            (a whole model, beside devices of other architectures); see edge_sdk/nodes/kernels.
        rounds_over: aggregator state -> its rounds that are over, where a round takes several closes; None: one each.
        alone: (env, told) -> theta (n,) that a device reaches by itself in as many rounds, where that is not local SGD;
            calls told(rounds that are done).
        forward: (env, shown model, device, whether it is judged on test samples too) -> what a hospital shows to that
            device, where it adds something of its own.
        scorer: (env, shown model) -> the scores of a device that needs more than theta for them, in place of env.score
            and env.test.
        predicts: (env, shown model) -> how a device's personal model predicts, where that takes its local model too or
            not all classes; None: as "personal" says.
        warms_up: its devices begin with `env.earlier`, if any.
        tells_scores: devices send the scores of their models upward.
        adds_up: its hospitals add their devices' `Sum`s up in a `gather.Tally`, and look at no vector in any other way;
            so parts of the sum may be made elsewhere (edge_sdk/simulation).
        traffic: settings -> which of its vectors may travel as integers, or why they must be floats, as a sentence.
        adding: the method in a run in which nobody may look at a single upload (run.uploads.unopened, secret): its
            hospitals only add up. None: they never do more, or it cannot be had.
        plain_sums: (settings, tier, rule) -> why a tier's sums must be the plain ones with that rule in their place, as
            a sentence; "": they need not.
        mirrored: tier -> what an upload moves, where a mean is kept of vectors of children's own, from zero on.
        shortened: (env, device state before a question, state after it, question, share) -> the state where only that
            share of the upload's movement has left, 0 also where there was no upload: noise needs it of methods whose
            devices keep vectors that move with their uploads; None: nothing does.
        own_noise: noise of its own, where its devices send what is not added up; None: it has none.
        spent: (env, aggregator state, of more sums) -> what all have told about a device so far, where there is noise.
        fixed: settings -> why devices that come or leave wait for the next run, as a sentence; "": they need not.
        fixed_hospitals: the same of hospitals; where devices are fixed, so are hospitals.
        late_counts: settings -> a hospital that a round was closed without goes on with it, as what its devices do for
            that counts in a later round; so they must not be told to stop.
        patient: hospitals begin once all devices are here; False: with those that came (delivery/roles/beginning.py).
        paper: settings of the paper's experiments, where `settings` has other defaults.
        recommended: settings of a run that says nothing of them (nodes/configuration/presets.py).
        search: between which values `auscult tune` looks.
    """

    # Every method has these: see fedavg.py
    name: str
    device: Role
    hospital: Role
    aggregator: Role
    messages: tuple[type, ...]
    settings: type
    env: type[NodeEnv]
    show: Callable[[Any, Any], Any]
    models: Callable[[Any, Any, Any], Mapping[str, Vector]]
    # What people are told
    summary: str = ""
    personal: str = KEPT_BESIDE
    warnings: Callable[[Any, Mapping[str, int]], Sequence[str]] = no_warnings
    private_warnings: Callable[[Any, Mapping[str, int], float], Sequence[str]] | None = None
    # Rounds, and what nodes are given: see hsgd/, `rounds_over` and `alone` fedal/
    policies: Callable[[Any, Mapping[str, int], float, float, int], Mapping[str, Policy]] = barriers
    kernels: str = "plain"
    rounds_over: Callable[[Any], int] | None = None
    alone: Callable[[Any, Callable[[int], None]], Vector] | None = None
    # Evaluation, and models for prediction: see hsgd/, `warms_up` ditto.py
    forward: Forward | None = None
    scorer: Callable[[Any, Any], tuple[Scorer | None, Scorer | None]] | None = None
    predicts: Callable[[Any, Any], Ensemble | None] | None = None
    warms_up: bool = False
    tells_scores: bool = True
    # Sums, also as integers, masked, with noise or robust rules: see scaffold.py; `adding` augfl/, `own_noise` fedal/
    adds_up: bool = False
    traffic: Callable[[Any], VectorTraffic | str] = no_sums
    adding: Method | None = None
    plain_sums: Callable[[Any, str, str], str] = any_rule
    mirrored: Mapping[str, Movement] = field(default_factory=dict)
    shortened: Callable[[Any, Any, Any, Any, float], Any] | None = None
    own_noise: OwnNoise | None = None
    spent: Callable[..., Any] | None = None
    # Devices and hospitals that come or leave: see fedslr_consensus.py
    fixed: Callable[[Any], str] = changeable
    fixed_hospitals: Callable[[Any], str] = changeable
    late_counts: Callable[[Any], bool] = never
    patient: bool = True
    # Settings: see fedbabu.py
    paper: Mapping[str, Any] = field(default_factory=dict)
    recommended: Mapping[str, Any] = field(default_factory=dict)
    search: SearchSpace = field(default_factory=dict)


def unchanged(env: Any, state: Any) -> Step:
    """The close of a role that has none."""
    return state, []
