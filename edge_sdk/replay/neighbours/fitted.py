"""A linear model and extremely randomised trees, from scikit-learn; nothing else here imports it.

Both give scores (N, classes) in which a class that was not among the training labels is below all others. A device that
knows one class predicts it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from edge_sdk.replay.neighbours.features import Floats
from edge_sdk.replay.neighbours.holders import Codes

Scores = Callable[[Floats], Floats]
TREES, MOST_STEPS = 300, 1000
"""Trees of a forest; steps of L-BFGS at most."""
NEVER = -20.0
"""Logit of a label that no training sample has."""
FARTHEST = 8.0
"""Standard deviations from the mean at which a standardised feature is cut: few windows make small deviations."""


def is_installed() -> bool:
    """Is scikit-learn there?"""
    try:
        return find_spec("sklearn") is not None
    except (ImportError, ValueError):
        return False


def fit_linear(x: Floats, y: Codes, own: Floats, classes: int, c: float) -> Scores:
    """Multinomial logistic regression with an L2 penalty.

    Args:
        x, y: to learn from, with augmented copies where there are any.
        own: the same without copies: features are standardised by their means and deviations.
        c: one over the penalty's weight.
    """
    from sklearn.linear_model import LogisticRegression

    mean, scale = own.mean(0), own.std(0) + 1e-6

    def standardised(rows: Floats) -> Floats:
        return np.asarray(np.clip((rows - mean) / scale, -FARTHEST, FARTHEST))

    scores = scores_of(lambda: LogisticRegression(C=c, max_iter=MOST_STEPS).fit(standardised(x), y), y, classes)
    return lambda rows: scores(standardised(rows))


def fit_trees(x: Floats, y: Codes, classes: int, leaf: int, seed: int) -> Scores:
    """Extremely randomised trees (P. Geurts, D. Ernst and L. Wehenkel, 2006), one core.

    Args:
        leaf: samples in a leaf at least.
    """
    from sklearn.ensemble import ExtraTreesClassifier

    forest = ExtraTreesClassifier(TREES, min_samples_leaf=leaf, random_state=seed, n_jobs=1)
    return scores_of(lambda: forest.fit(x, y), y, classes)


def scores_of(fit: Callable[[], Any], y: Codes, classes: int) -> Scores:
    """Probabilities of the classes of y, and -1 of all others; where y has one class there is nothing to fit."""
    seen = np.unique(y)
    model = fit() if len(seen) > 1 else None

    def scores(rows: Floats) -> Floats:
        found = np.full((len(rows), classes), -1.0)
        found[:, seen] = model.predict_proba(rows) if model is not None and len(rows) else 1.0
        return found

    return scores


# Values in place of classes -------------------------------------------------------------------------------------
def fit_ridge(x: Floats, y: Floats, penalty: float) -> Scores:
    """Ridge regression of targets (N, K) on standardised features."""
    from sklearn.linear_model import Ridge

    mean, scale = x.mean(0), x.std(0) + 1e-6

    def standardised(rows: Floats) -> Floats:
        return np.asarray(np.clip((rows - mean) / scale, -FARTHEST, FARTHEST))

    ridge = Ridge(alpha=penalty).fit(standardised(x), y)
    return lambda rows: np.asarray(ridge.predict(standardised(rows))).reshape(len(rows), -1)


def fit_value_trees(x: Floats, y: Floats, leaf: int, seed: int, trees: int = TREES) -> Scores:
    """Extremely randomised trees for targets (N, K), so many of them. `leaf`: as of `fit_trees`."""
    from sklearn.ensemble import ExtraTreesRegressor

    own = y[:, 0] if y.shape[1] == 1 else y  # one value is a vector to scikit-learn
    forest = ExtraTreesRegressor(trees, min_samples_leaf=leaf, random_state=seed, n_jobs=1).fit(x, own)
    return lambda rows: np.asarray(forest.predict(rows)).reshape(len(rows), -1)


# Sets of labels -------------------------------------------------------------------------------------------------
def fit_logistic(x: Floats, y: Floats, c: float) -> Scores:
    """A logistic regression with an L2 penalty for each label of y (N, K), on standardised features: logits (N, K).

    Args:
        c: one over the penalty's weight. A label that all samples have, or none, is predicted, or not, for good.
    """
    from sklearn.linear_model import LogisticRegression

    mean, scale = x.mean(0), x.std(0) + 1e-6

    def standardised(rows: Floats) -> Floats:
        return np.asarray(np.clip((rows - mean) / scale, -FARTHEST, FARTHEST))

    known, models = standardised(x), list[Any]()
    for column in (y > 1 / 2).T:
        both = 0 < column.sum() < len(column)
        models.append(LogisticRegression(C=c, max_iter=MOST_STEPS).fit(known, column) if both else bool(column.all()))

    def scores(rows: Floats) -> Floats:
        found = [
            np.full(len(rows), NEVER if not model else -NEVER)
            if isinstance(model, bool)
            else model.decision_function(standardised(rows))
            for model in models
        ]
        return np.stack(found, 1)

    return scores


# Windows themselves ---------------------------------------------------------------------------------------------
def fit_components(x: Floats, components: int, seed: int) -> Scores:
    """The first principal components of rows x (N, D), at most so many: rows -> what these say of them."""
    from sklearn.decomposition import PCA

    fitted = PCA(min(components, *x.shape), random_state=seed).fit(x)
    return lambda rows: np.asarray(fitted.inverse_transform(fitted.transform(rows)))


def fit_mahalanobis(x: Floats) -> Scores:
    """The squared Mahalanobis distance (N,) of rows from rows x, standardised, with a covariance by Ledoit and Wolf."""
    from sklearn.covariance import LedoitWolf

    mean, scale = x.mean(0), x.std(0) + 1e-6
    fitted = LedoitWolf().fit((x - mean) / scale)
    return lambda rows: np.asarray(fitted.mahalanobis((rows - mean) / scale))
