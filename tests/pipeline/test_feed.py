from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.preprocessing import PlainPreprocessing


def feed(split: Split, preprocessing: Any = None, **values: Any) -> Feed:
    options = {"seed": 3, "is_training": True, "start_position": 0, "strategy": None}
    options = {name: values.pop(name, default) for name, default in options.items()}
    settings = PipelineSettings(**{"batch_size": 4, "readers": 2, "threads": 2, **values})
    return Feed(split, preprocessing=preprocessing or PlainPreprocessing(8), settings=settings, **options)


def strategies() -> dict[str, Callable[[], tf.distribute.Strategy]]:
    return {
        "default": tf.distribute.get_strategy,
        "one": lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
        "mirrored": lambda: tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]),
    }


# On one device named so it is as on the default one.
STRATEGIES = [pytest.param(name, marks=pytest.mark.slow) if name == "one" else name for name in strategies()]


def gathered(strategy: tf.distribute.Strategy, value: Any) -> np.ndarray:
    return np.concatenate([part.numpy() for part in strategy.experimental_local_results(value)])


@pytest.mark.parametrize("name", STRATEGIES)
def test_replicas_share_the_same_batches(split: Split, name: str) -> None:
    strategy = strategies()[name]()
    with feed(split) as plain, feed(split, strategy=strategy) as shared:
        for _ in range(8):
            expected, batch = next(plain), next(shared)
            parts = strategy.experimental_local_results(batch["image"])
            assert [part.shape[0] for part in parts] == [4 // len(parts)] * strategy.num_replicas_in_sync
            for key, value in batch.items():
                assert (gathered(strategy, value) == expected[key].numpy()).all()
        assert shared.position == plain.position == 32


@pytest.mark.parametrize("name", STRATEGIES)
def test_evaluation_ends_after_each_example_once(split: Split, name: str) -> None:
    strategy = strategies()[name]()
    with feed(split, is_training=False, strategy=strategy, batch_size=8) as batches:
        assert batches.num_batches == 3
        found = [(gathered(strategy, b["index"]), gathered(strategy, b["valid"])) for b in batches]
        assert len(found) == 3
        assert np.concatenate([index[valid] for index, valid in found]).tolist() == list(range(21))
        with pytest.raises(StopIteration):
            next(batches)


def test_a_step_function_takes_its_batches(split: Split) -> None:
    strategy = strategies()["mirrored"]()
    with feed(split, strategy=strategy) as batches:

        @tf.function(input_signature=[batches.element_spec])
        def step(batch: Any) -> tf.Tensor:
            sums = strategy.run(lambda b: tf.reduce_sum(b["index"]), args=(batch,))
            return strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)

        with feed(split) as plain:
            for _ in range(3):
                assert int(step(next(batches))) == int(tf.reduce_sum(next(plain)["index"]))


def test_it_goes_on_from_a_position(split: Split) -> None:
    with feed(split) as whole:
        indices = [next(whole)["index"].numpy().tolist() for _ in range(9)]
    with feed(split, start_position=20) as rest:
        assert rest.position == 20
        assert [next(rest)["index"].numpy().tolist() for _ in range(4)] == indices[5:]
        assert rest.position == 36


class Slow(PlainPreprocessing):
    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.py_function(lambda: time.sleep(0.05), [], [])]):
            return super().finish(image, draws)


def test_the_wait_is_measured(split: Split) -> None:
    with feed(split, Slow(8), readers=1, threads=1) as batches:
        next(batches)
        next(batches)
        assert 0.1 < batches.last_wait_secs < 1
    with feed(split) as batches:
        next(batches)
        time.sleep(0.3)
        next(batches)
        assert batches.last_wait_secs < 0.1


def num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_no_thread_outlives_it(split: Split) -> None:
    with feed(split) as batches:  # TensorFlow's own pools start with the first.
        next(batches)
    before = num_threads()
    with feed(split, readers=8, threads=8) as batches:
        next(batches)
        assert num_threads() > before + 8
    deadline = time.monotonic() + 5
    while num_threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert num_threads() <= before
    with pytest.raises(ValueError, match="The feed is closed"):
        next(batches)


@pytest.mark.slow
def test_it_can_be_closed_at_any_moment(split: Split) -> None:
    strategy = strategies()["mirrored"]()
    for _ in range(10):
        batches = feed(split, strategy=strategy, batch_size=2)
        next(batches)
        batches.close()


@pytest.mark.parametrize("name", STRATEGIES)
def test_all_bad_files_of_the_batch_are_named(split: Split, damaged: Callable, name: str) -> None:
    with open(split.paths[9], "rb") as file:
        half = file.read()[:-400]
    bad = damaged({8: None, 9: half, 10: b"", 13: b"<html>"})
    with feed(bad, shuffle=False, strategy=strategies()[name]()) as batches:
        for _ in range(2):
            next(batches)
        with pytest.raises(UserError) as caught:
            next(batches)
        assert batches.position == 8
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 images of a batch of 4 cannot be read:"
    assert lines[1].startswith("  train.txt:9: '")
    assert lines[1].endswith("bad 8.jpg': there is no such file")
    assert lines[2].endswith(f"bad 9.jpg': the JPEG is cut short or damaged: {len(half)} bytes, without the end marker")
    assert lines[3].endswith("bad 10.jpg': the file is empty (0 bytes)")
    assert lines[4] == "Mend or replace the files, or take them out of train.txt."
    assert isinstance(caught.value.__cause__, tf.errors.OpError)


def test_one_bad_file_of_a_shuffled_stream(split: Split, damaged: Callable) -> None:
    message = r"^1 image of a batch of 4(?s:.*)train\.txt:18: .*begins with b'hello'"
    with feed(damaged({17: b"hello"})) as batches, pytest.raises(UserError, match=message):
        list(batches)


def test_a_bad_file_in_the_short_last_batch_of_an_evaluation(split: Split, damaged: Callable) -> None:
    batches = feed(damaged({20: b"hello"}), is_training=False)
    with batches, pytest.raises(UserError, match=r"1 image of a batch of 1 cannot be read:\s+train\.txt:21: "):
        list(batches)


def test_a_file_name_that_is_not_utf8(split: Split) -> None:
    paths = [b"/nowhere/\xff\xfe.jpg", *split.paths[1:]]
    bad = Split("train", paths, split.labels, "train.txt")
    with (
        feed(bad, shuffle=False) as batches,
        pytest.raises(UserError, match=r"train\.txt: '/nowhere/.*xff.*xfe\.jpg': there is no such file"),
    ):
        next(batches)


def fail(image: Any) -> Any:
    raise RuntimeError("no luck")


class Raising(PlainPreprocessing):
    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        return super().finish(tf.ensure_shape(tf.py_function(fail, [image], tf.uint8), [None, None, 3]), draws)


class Leaving(PlainPreprocessing):
    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        return tf.stack([0, 1, height, width])


@pytest.mark.parametrize(
    ("preprocessing", "message"),
    [
        (
            Raising(8),
            r"^Raising\.finish failed on train\.txt:1: '.*0\.jpg', though the file is sound: (?s:.*)luck",
        ),
        (
            Leaving(8),
            r"^Leaving\.window failed on train\.txt:1: .*\(y 0, x 1, height 80, width 96\) leaves the picture",
        ),
    ],
)
def test_a_failing_preprocessing_is_not_called_a_bad_file(split: Split, preprocessing: Any, message: str) -> None:
    with feed(split, preprocessing, shuffle=False) as batches, pytest.raises(UserError, match=message) as caught:
        next(batches)
    assert caught.value.__cause__ is not None


def test_a_failure_that_does_not_come_back(split: Split, damaged: Callable) -> None:
    gone = damaged({5: None})
    with feed(gone, shuffle=False) as batches:
        next(batches)
        time.sleep(0.5)  # Long enough for the readers to have met the missing file of the second batch.
        with open(split.paths[5], "rb") as source, open(gone.paths[5], "wb") as target:
            target.write(source.read())
        with pytest.raises(UserError, match="each of its images can be read and preprocessed now"):
            next(batches)


class Branching(PlainPreprocessing):
    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        if tf.reduce_mean(tf.cast(image, tf.float32)) > 0:  # Python's own `if` on a tensor.
            image = 255 - image
        return super().finish(image, draws)


def test_a_preprocessing_may_branch_on_tensors(split: Split) -> None:
    with feed(split, Branching(8)) as branching, feed(split, decoder="tensorflow") as plain:
        np.testing.assert_allclose(next(branching)["image"], -next(plain)["image"].numpy(), atol=1e-5)


def test_the_settings_must_fit_the_strategy(split: Split) -> None:
    with pytest.raises(UserError, match="batch_size=5 cannot be divided evenly among 2 replicas"):
        feed(split, batch_size=5, strategy=strategies()["mirrored"]())
