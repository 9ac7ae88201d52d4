from __future__ import annotations

import pytest

from slimexp.evaluation import text
from slimexp.evaluation.text import font_families, labels_for


@pytest.fixture
def _no_more_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with matplotlib's own fonts alone."""
    monkeypatch.setattr(text, "_MORE_FAMILIES", ())
    for cached in (text.font_families, text._has_glyph, text._character_maps):
        cached.cache_clear()


@pytest.mark.usefixtures("_no_more_fonts")
def test_labels() -> None:
    names = ["cat", "a\nb\t c", "étiquette", "犬と猫", "dogs 犬", "", "x" * 30, "a\udc80bc"]
    assert labels_for(names, 10) == ["cat", "a b c", "étiquette", "#3", "dogs □", "#5", "xxxxxxxxx…", "a bc"]


def test_the_first_font_comes_with_matplotlib() -> None:
    assert font_families()[0] == "DejaVu Sans"
