"""Makes any class name fit into a figure: its length, its letters, its formatting characters."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from matplotlib import font_manager

__all__ = ["font_families", "labels_for"]

# Comes with matplotlib, so it is always there.
_BASE_FAMILY = "DejaVu Sans"
# Families with the letters that it lacks, as common systems have them.
_MORE_FAMILIES = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans", "Microsoft YaHei", "SimHei", "Arial Unicode MS", "Droid Sans Fallback"),
    *("Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali", "Noto Sans Tamil"),
)


def labels_for(class_names: Sequence[str], max_length: int) -> list[str]:
    """Returns what to write for each class.

    Args:
        class_names: Names as the user gave them.
        max_length: How many characters fit; longer names end with an ellipsis.

    Returns:
        One line a name. Letters that no installed font has are shown as a box; where those are half of the name or
        more, the class number stands for it (`#7`).
    """
    return [_label(number, name, max_length) for number, name in enumerate(class_names)]


@functools.cache
def font_families() -> tuple[str, ...]:
    """Returns the font families to look for a letter in, in this order."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return (_BASE_FAMILY, *(family for family in _MORE_FAMILIES if family in installed))


def _label(number: int, name: str, max_length: int) -> str:
    # Line breaks and control characters would tear the layout.
    clean = "".join(" " if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c for c in name)
    clean = " ".join("".join(c for c in clean if unicodedata.category(c) != "Cf").split())
    shown = "".join(c if c == " " or _has_glyph(c) else "\u25a1" for c in clean)
    missing = sum(a != b for a, b in zip(clean, shown, strict=True))
    if not clean or 2 * missing >= len(clean):
        return f"#{number}"
    return shown if len(shown) <= max_length else shown[: max_length - 1] + "\u2026"


@functools.cache
def _has_glyph(letter: str) -> bool:
    return any(ord(letter) in characters for characters in _character_maps())


@functools.cache
def _character_maps() -> tuple[frozenset[int], ...]:
    maps = []
    for family in font_families():
        path = font_manager.findfont(font_manager.FontProperties(family=[family]), fallback_to_default=True)
        if Path(path).exists():
            maps.append(frozenset(font_manager.get_font(path).get_charmap()))
    return tuple(maps)
