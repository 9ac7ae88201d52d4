"""One device or several: what is asked for, and what is there."""

from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.training.devices import make_strategy


def pretend_gpus(monkeypatch, count):
    gpus = [tf.config.PhysicalDevice(f"/physical_device:GPU:{number}", "GPU") for number in range(count)]
    there = tf.config.list_physical_devices
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: gpus if kind == "GPU" else there(kind))
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: {"device_name": "H200"})
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, enable: None)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda devices, **how: ("mirrored", devices))
    monkeypatch.setattr(tf.distribute, "OneDeviceStrategy", lambda device: ("one", device))


@pytest.mark.parametrize(
    ("gpus", "kind", "clones", "expected"),
    [
        (0, "auto", None, ("one", "/cpu:0")),
        (0, "auto", 2, ("mirrored", ["/cpu:0", "/cpu:1"])),
        (0, "mirrored", None, ("mirrored", ["/cpu:0"])),
        (1, "auto", None, ("one", "/gpu:0")),
        (2, "auto", None, ("mirrored", ["/gpu:0", "/gpu:1"])),
        (2, "auto", 1, ("one", "/gpu:0")),
        (2, "one", None, ("one", "/gpu:0")),
        (3, "mirrored", 2, ("mirrored", ["/gpu:0", "/gpu:1"])),
    ],
)
def test_the_devices(monkeypatch, gpus, kind, clones, expected):
    pretend_gpus(monkeypatch, gpus)
    assert make_strategy(kind, clones) == expected


def test_more_than_there_are_is_refused(monkeypatch):
    with pytest.raises(UserError, match=r"trainer\.num_clones=9: there is no GPU, and this process has already begun"):
        make_strategy("mirrored", 9)
    pretend_gpus(monkeypatch, 1)
    with pytest.raises(UserError, match=r"trainer\.num_clones=2: there is 1 GPU \(H200\)\. Ask for as many or fewer"):
        make_strategy("auto", 2)
    with pytest.raises(UserError, match=r"trainer\.num_clones=2: trainer\.strategy=one has a single one"):
        make_strategy("one", 2)


def test_clones_on_the_cpu_are_said_to_be_for_trying_out(caplog):
    assert make_strategy("auto", 2).num_replicas_in_sync == 2
    assert "There is no GPU: 2 clones share the CPU" in caplog.text
    assert make_strategy().num_replicas_in_sync == 1
