from __future__ import annotations

import pytest

from slimexp.slim.data.dataset import Dataset


def test_arguments_are_attributes():
    dataset = Dataset(["a"], "reader", "decoder", 7, {"image": "A photo."}, num_classes=5)
    assert (dataset.data_sources, dataset.reader, dataset.decoder) == (["a"], "reader", "decoder")
    assert (dataset.num_samples, dataset.items_to_descriptions) == (7, {"image": "A photo."})
    assert dataset.num_classes == 5
    with pytest.raises(
        AttributeError, match="The dataset has no 'labels'; it has data_sources, decoder, items_to_desc"
    ):
        _ = dataset.labels
