"""Compares an export with evaluation, on real images: what is not the same is not handed over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from slimexp.errors import UserError

__all__ = ["TOLERANCE", "Sample", "compare"]

# Between two graphs of the same network sums come out in other orders, which in float32 is far below this.
TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Sample:
    """Real images as evaluation sees them.

    Attributes:
        images: float32 [n, size, size, 3], preprocessed.
        scores: float64 [n, C], what evaluation says.
        paths: Where they are, for messages.
        contents: Their files' bytes; None for a file in a format that a graph cannot decode.
        split: Which examples they are of, in words.
    """

    images: np.ndarray
    scores: np.ndarray
    paths: Sequence[str]
    contents: Sequence[bytes | None]
    split: str

    def __len__(self) -> int:
        return len(self.images)

    @property
    def decodable(self) -> list[int]:
        """The numbers of those whose bytes a graph can decode."""
        return [number for number, content in enumerate(self.contents) if content is not None]


def compare(
    sample: Sample,
    of_images: Mapping[str, Callable[[np.ndarray], np.ndarray]],
    of_bytes: Mapping[str, Callable[[Sequence[bytes]], np.ndarray]],
) -> dict[str, float]:
    """Holds the scores of an export's parts against evaluation's.

    Each part gets the first image alone and the others together, so that it is known to take any number.

    Args:
        sample: The images.
        of_images: By name of a part, from finished images to scores.
        of_bytes: By name of a part, from files' bytes to scores.

    Returns:
        The greatest difference of each part.

    Raises:
        UserError: If one is above `TOLERANCE`.
    """
    everything = list(range(len(sample)))
    calls = [(name, everything, _taking(score, sample.images)) for name, score in of_images.items()]
    contents = [content or b"" for content in sample.contents]
    calls += [(name, sample.decodable, _taking(score, contents)) for name, score in of_bytes.items()]
    found = {}
    for name, numbers, score in calls:
        if not numbers:
            continue
        parts = [score(part) for part in (numbers[:1], numbers[1:]) if part]
        differences = np.abs(np.concatenate(parts).astype(np.float64) - sample.scores[numbers]).max(axis=1)
        worst = int(np.argmax(np.where(np.isnan(differences), np.inf, differences)))
        found[name] = float(differences[worst])
        if not found[name] <= TOLERANCE:
            raise UserError(
                f"the export fails its check: {name} gives {sample.paths[numbers[worst]]!r} scores that differ from "
                f"evaluation's by up to {found[name]:.3g}, and {TOLERANCE:g} is the most that is let pass. Nothing is "
                "left of it. A preprocessing or network of your own that does not do the same in every graph would "
                "explain it; with those of slimexp it is a fault of slimexp."
            )
    return found


def _taking(score: Callable[[Any], np.ndarray], values: Any) -> Callable[[list[int]], np.ndarray]:
    return lambda numbers: score(values[numbers] if isinstance(values, np.ndarray) else [values[n] for n in numbers])
