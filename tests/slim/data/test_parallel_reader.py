from __future__ import annotations

import pytest
import tensorflow as tf

from slimexp import slim
from slimexp.slim.data.parallel_reader import ParallelReader, get_data_files, parallel_read, single_pass_read
from tests.slim.data import records

v1 = tf.compat.v1


def test_files_of_sources(tmp_path):
    paths = records.write(tmp_path, 3, 1)
    assert sorted(get_data_files(str(tmp_path / "part-*"))) == paths
    assert get_data_files([paths[2], str(tmp_path / "part-[01].tfrecord")])[0] == paths[2]
    assert get_data_files("gs://bucket/not-looked-up") == ["gs://bucket/not-looked-up"]
    with pytest.raises(ValueError, match=r"No data files found in '.*/nothing-\*'"):
        get_data_files([paths[0], str(tmp_path / "nothing-*")])
    with pytest.raises(ValueError, match=r"No data files found in \[\]"):
        get_data_files([])


@pytest.mark.parametrize("shuffle", [False, True])
def test_parallel_reading_reads_everything_once_an_epoch(tmp_path, shuffle):
    paths = records.write(tmp_path, 3, 4)
    with tf.Graph().as_default():
        key, value = parallel_read(
            paths, v1.TFRecordReader, num_epochs=1, num_readers=4, shuffle=shuffle, capacity=6, min_after_dequeue=3
        )
        (fill,) = [s for s in v1.get_collection(v1.GraphKeys.SUMMARIES) if "of_6" in s.name]
        assert fill.op.name == "parallel_read/fraction_of_6_full"
        (label,) = records.decoder().decode(value, ["label"])
        with records.running() as run:
            read = records.everything(run, [key, label])
    assert sorted(int(label) for _, label in read) == list(range(12))


def test_several_at_once_and_the_readers_counts(tmp_path):
    paths = records.write(tmp_path, 2, 3)
    with tf.Graph().as_default():
        queue = tf.queue.FIFOQueue(50, [tf.string, tf.string], shapes=[[], []])
        reader = ParallelReader(v1.TFRecordReader, queue, num_readers=2, reader_kwargs={"name": "own"})
        assert (reader.num_readers, reader.common_queue) == (2, queue)
        names = v1.train.string_input_producer(paths, num_epochs=1)
        keys, _ = reader.read_up_to(names, 4)
        counts = [reader.num_records_produced(), reader.num_work_units_completed()]
        with records.running() as run:
            assert sum(len(k) for k in records.everything(run, keys)) == 6
            assert [int(count) for count in run(counts)] == [6, 2]
            run(reader.reset())
            assert [int(count) for count in run(counts)] == [0, 0]
        assert isinstance(reader, v1.ReaderBase)
        assert reader.supports_serialize is False
        with pytest.raises(NotImplementedError, match="cannot be saved"):
            reader.serialize_state()
        with pytest.raises(NotImplementedError, match="cannot be restored"):
            reader.restore_state("")
        with pytest.raises(NotImplementedError, match="no single reader_ref"):
            _ = reader.reader_ref


def test_the_common_queue_must_hold_two_strings():
    with tf.Graph().as_default():
        for dtypes in ([tf.string], [tf.string, tf.int64]):
            with pytest.raises(TypeError, match=r"common_queue.dtypes must be \[tf.string, tf.string\], not"):
                ParallelReader(v1.TFRecordReader, tf.queue.FIFOQueue(2, dtypes))


def test_a_single_pass_is_in_order(tmp_path):
    paths = records.write(tmp_path, 2, 3)
    with tf.Graph().as_default():
        _, value = single_pass_read(paths, v1.TFRecordReader)
        (label,) = records.decoder().decode(value, ["label"])
        with records.running() as run:
            assert [int(n) for n in records.everything(run, label)] == list(range(6))


def test_a_missing_file_surfaces(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        key, _ = slim.parallel_reader.parallel_read(str(tmp_path / "gone"), v1.TFRecordReader, num_readers=1)
        coordinator = tf.train.Coordinator()
        threads = v1.train.start_queue_runners(session, coordinator)
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(key)
        with pytest.raises(tf.errors.NotFoundError, match="gone"):
            coordinator.join(threads)
