"""A value that the schema does not take is told in our words."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from slimexp.config import GROUP_SCHEMAS
from slimexp.config.pipeline import QueuesConfig, ReadQueueConfig
from slimexp.wrong_values import explain_value


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("pipeline.batch_size", "x", "pipeline.batch_size=x: must be a whole number."),
        ("pipeline.batch_size", None, "pipeline.batch_size=null: must be a whole number; null is not possible."),
        ("pipeline.queues.read.capacity", "x", "pipeline.queues.read.capacity=x: must be a whole number, or null."),
        ("pipeline.queues.read", 3, "pipeline.queues.read=3: must be a group of keys: capacity, min_after_dequeue."),
        ("pipeline.shuffle", "maybe", "pipeline.shuffle=maybe: must be true or false."),
        ("pipeline.decoder", "fast", "pipeline.decoder=fast: must be auto, tensorflow or native."),
        ("pipeline.decoder", True, "pipeline.decoder=true: must be auto, tensorflow or native."),
        ("export.formats", "tflite", "export.formats=tflite: must be a list, [a,b,...], and each in it saved_model,"),
        ("export.formats", ["x"], "export.formats[0]=x: must be saved_model, frozen_graph or tflite."),
        ("tracking.tags", 3, "tracking.tags=3: must be a group of keys, e.g. {a: 1}."),
        ("model.name", ["a"], "model.name=['a']: must be text."),
    ],
    ids=lambda value: value if isinstance(value, str) and ":" not in value else "",
)
def test_the_message_has_key_value_and_rule(key: str, value: object, message: str) -> None:
    config = OmegaConf.create({group: OmegaConf.structured(schema) for group, schema in GROUP_SCHEMAS.items()})
    config.pipeline.queues = OmegaConf.structured(QueuesConfig)
    config.pipeline.queues.read = OmegaConf.structured(ReadQueueConfig)
    with pytest.raises(OmegaConfBaseException) as caught:
        OmegaConf.update(config, key, value)
    assert explain_value(caught.value).startswith(message)


def test_other_errors_keep_their_words() -> None:
    with pytest.raises(OmegaConfBaseException) as caught:
        _ = OmegaConf.create({"a": "${b}"}).a
    assert explain_value(caught.value, "loss") == "loss.a: Interpolation key 'b' not found"
