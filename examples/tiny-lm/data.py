"""English text that every Python ships with, as bytes, and batches cut from it."""

from __future__ import annotations

import numpy as np

VOCABULARY = 256
HELD_OUT = 0.05


def text() -> np.ndarray:
    """The help topics of the Python language, in the order of their names, one byte a token."""
    from pydoc_data.topics import topics

    return np.frombuffer("\n".join(topics[name] for name in sorted(topics)).encode(), dtype=np.uint8)


def split(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The part to learn from, and the last part, which is held out to check what was learnt."""
    cut = int(len(tokens) * (1 - HELD_OUT))
    return tokens[:cut], tokens[cut:]


def batch(tokens: np.ndarray, step: int, rows: int, length: int) -> np.ndarray:
    """Random crops of `length + 1` tokens, int32; a function of the step alone.

    Every host cuts the same batch without talking to the others, and a resumed run continues with the crops
    that the first run would have seen.
    """
    starts = np.random.default_rng(step).integers(0, len(tokens) - length - 1, size=rows)
    return tokens[starts[:, None] + np.arange(length + 1)].astype(np.int32)


def letter_loss(learn: np.ndarray, held_out: np.ndarray) -> float:
    """Nats per held-out token of a guesser that only learnt how frequent each byte is: what a model has to beat."""
    shares = (np.bincount(learn, minlength=VOCABULARY) + 1) / (len(learn) + VOCABULARY)
    return float(-np.log(shares[held_out]).mean())


def uniform_loss() -> float:
    """Nats per token of a guesser that knows nothing."""
    return float(np.log(VOCABULARY))
