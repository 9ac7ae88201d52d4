from __future__ import annotations

import pytest

from slimexp.slim.data.data_decoder import DataDecoder


def test_a_decoder_must_decode_and_list():
    class Half(DataDecoder):
        def list_items(self):
            return ["image"]

    with pytest.raises(TypeError, match="decode"):
        Half()
