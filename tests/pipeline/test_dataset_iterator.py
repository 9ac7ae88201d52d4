from __future__ import annotations

import threading
from pathlib import Path

import pytest
import tensorflow as tf

from slimexp.pipeline.dataset_iterator import DatasetIterator, elements

_POOL = 7


def _endless() -> tf.data.Dataset:
    """A pipeline with threads of its own and a model that a thread looks at."""
    options = tf.data.Options()
    options.autotune.enabled = True
    options.threading.private_threadpool_size = _POOL
    numbers = tf.data.Dataset.range(10).repeat().map(lambda n: n + 1, num_parallel_calls=2)
    return numbers.prefetch(2).with_options(options)


def _num_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_gives_the_elements_of_a_dataset() -> None:
    dataset = tf.data.Dataset.range(5).map(lambda n: {"b": n, "a": (tf.fill([n], 2.0), n + 1)})
    iterator = DatasetIterator(dataset)
    taken = list(iterator)
    assert [int(element["b"]) for element in taken] == [0, 1, 2, 3, 4]
    assert [int(element["a"][1]) for element in taken] == [1, 2, 3, 4, 5]
    assert taken[3]["a"][0].numpy().tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(StopIteration):
        next(iterator)
    iterator.close()


def test_what_follows_an_error_can_be_had() -> None:
    dataset = tf.data.Dataset.range(3).map(lambda n: tf.debugging.check_numerics(1 / tf.cast(n - 1, tf.float32), "no"))
    iterator = DatasetIterator(dataset)
    assert float(next(iterator)) == -1
    with pytest.raises(tf.errors.InvalidArgumentError, match="no"):
        next(iterator)
    assert float(next(iterator)) == 1
    iterator.close()


def test_closing_ends_the_pipelines_threads() -> None:
    if not Path("/proc/self/task").exists():
        pytest.skip("threads are counted in /proc, which this system has not")
    counts = []
    for _ in range(5):
        iterator = DatasetIterator(_endless())
        assert int(next(iterator)) == 1
        assert {node.name for node in iterator.model().nodes.values()} >= {"Root", "ParallelMapV2", "Prefetch"}
        before = _num_threads()
        _join(iterator.close())
        assert _num_threads() < before
        assert iterator.close() is None
        with pytest.raises(ValueError, match="closed"):
            next(iterator)
        counts.append(_num_threads())
    # TensorFlow starts a few that stay.
    assert counts[-1] < counts[0] + _POOL


def test_one_that_is_waited_for_elsewhere_may_be_closed() -> None:
    asked, answer = threading.Event(), threading.Event()

    def wait(n: int) -> int:
        asked.set()
        answer.wait()
        return n

    dataset = tf.data.Dataset.range(2).map(lambda n: tf.numpy_function(wait, [n], tf.int64))
    iterator = DatasetIterator(dataset)
    taken: list[int] = []
    taker = threading.Thread(target=lambda: taken.append(int(next(iterator))))
    taker.start()
    assert asked.wait(60)
    ending = iterator.close()
    answer.set()
    taker.join(60)
    _join(ending)
    assert taken == [0]


def test_elements_closes_its_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: set[DatasetIterator] = set()
    close = DatasetIterator.close
    monkeypatch.setattr(DatasetIterator, "close", lambda self: (closed.add(self), close(self))[1])
    assert [int(n) for n in elements(tf.data.Dataset.range(3))] == [0, 1, 2]
    assert len(closed) == 1
    for n in elements(_endless()):  # Its own options hold, but for that one.
        assert int(n) == 1
        break
    assert len(closed) == 2


def _join(thread: threading.Thread | None) -> None:
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
