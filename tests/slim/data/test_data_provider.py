from __future__ import annotations

import pytest

from slimexp.slim.data.data_provider import DataProvider


def test_items_by_name():
    provider = DataProvider({"image": 1, "label": 2}, num_samples=9)
    assert provider.get(["label", "image"]) == [2, 1]
    assert provider.get(("image",)) == [1]
    assert provider.list_items() == ["image", "label"]
    assert provider.num_samples() == 9
    with pytest.raises(ValueError, match="There is no item 'mask'; there is image, label"):
        provider.get(["image", "mask"])
    with pytest.raises(ValueError, match="must be a list or tuple of names, not 'image'"):
        provider.get("image")
