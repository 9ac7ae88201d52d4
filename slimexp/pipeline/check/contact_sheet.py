"""Draws samples side by side: each image as the network gets it, and beside it the picture that it was made of."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
from PIL import Image

from slimexp.evaluation.drawing import saved_figure
from slimexp.evaluation.text import labels_for
from slimexp.pipeline.check.samples import Sample

__all__ = ["TILE_PX", "draw_contact_sheet"]

TILE_PX = 160
_PAIRS_A_ROW = 4
_GAP_PX, _CAPTION_PX, _HEADER_PX = 14, 30, 40
_PX_PER_INCH = 110
_CAPTION_CHARS = 40


def draw_contact_sheet(
    samples: Sequence[Sample], captions: Sequence[str], path: str | os.PathLike[str], title: str
) -> None:
    """Draws samples in pairs, four pairs a row: on the left what the network gets, on the right the original.

    Args:
        samples: One at least.
        captions: A line for each.
        path: The PNG file.
        title: Stands above all.
    """
    columns = min(_PAIRS_A_ROW, len(samples))
    rows = math.ceil(len(samples) / columns)
    pair_px, row_px = 2 * TILE_PX + _GAP_PX, TILE_PX + _CAPTION_PX
    width, height = columns * pair_px + _GAP_PX, rows * row_px + _HEADER_PX
    canvas = np.full([height, width, 3], 255, np.uint8)
    with saved_figure(path, width / _PX_PER_INCH, height / _PX_PER_INCH) as figure:
        # Placed by the pixel: the canvas is the figure.
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        for number, (sample, caption) in enumerate(zip(samples, labels_for(captions, _CAPTION_CHARS), strict=True)):
            y = _HEADER_PX + number // columns * row_px + _CAPTION_PX
            x = _GAP_PX + number % columns * pair_px
            for picture, left in ((sample.image, x), (sample.original, x + TILE_PX + 2)):
                tile = _fitted(picture)
                canvas[y : y + tile.shape[0], left : left + tile.shape[1]] = tile
            axes.text(x, y - 5, caption, fontsize=7, va="bottom", ha="left")
        axes.text(_GAP_PX, 10, title, fontsize=8, va="top", ha="left")
        axes.imshow(canvas, interpolation="nearest")
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)


def _fitted(picture: np.ndarray) -> np.ndarray:
    """Scales a picture so that its longer side fills a tile; small ones keep their square pixels."""
    longer = max(picture.shape[:2])
    size = tuple(max(round(side * TILE_PX / longer), 1) for side in picture.shape[1::-1])
    resample = Image.Resampling.NEAREST if 2 * longer <= TILE_PX else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(picture).resize(size, resample))
