"""What goes into an exported graph, and what cannot."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp.export.module import IMAGE_BYTES, IMAGES, ExportedModel, why_no_bytes
from slimexp.export.scoring import SavedModelScorer, probabilities
from slimexp.pipeline.preprocessing import LenetPreprocessing, PlainPreprocessing, Preprocessing
from slimexp.pipeline.steps import Step, SteppedPreprocessing
from slimexp.training.classifier import Classifier
from tests.export.pictures import encoded, smooth
from tests.export.small_net import small_net


class OwnPreprocessing(Preprocessing):
    """A user's own, with Python's `if` on a tensor."""

    def window(self, height, width, draws):
        return tf.stack([0, 0, height, width])

    def finish(self, image, draws):
        if tf.shape(image)[0] > 10:
            image = image[:10]
        return tf.image.resize(image, [self.size_px, self.size_px]) / 255.0


def halve(image):
    return image / 2


def with_step(**options):
    return SteppedPreprocessing(PlainPreprocessing(8), [Step("preprocessing.steps[0]", **options)])


def model_of(preprocessing, task="single"):
    weights = tf.Variable(np.random.RandomState(0).normal(size=[8 * 8 * 3, 2]), dtype=tf.float32)
    return ExportedModel(
        lambda images: tf.matmul(tf.reshape(images, [-1, 8 * 8 * 3]), weights),
        variables=[weights],
        class_names=["é", "b"],
        task=task,
        image_size=8,
        preprocessing=preprocessing,
    )


def test_tensorflow_goes_in_and_python_does_not():
    assert why_no_bytes(PlainPreprocessing(8)) is None
    assert why_no_bytes(LenetPreprocessing(8, is_training=False)) is None
    assert why_no_bytes(OwnPreprocessing(8, is_training=False)) is None
    assert why_no_bytes(with_step(function=halve)) is None
    numpy = with_step(function=lambda image: image, is_numpy=True)
    assert "has a step in NumPy or Python" in why_no_bytes(numpy)
    drawn = with_step(function=lambda image, draws: image + draws[0], num_draws=1)
    assert "evaluation draws 1 random numbers an image" in why_no_bytes(drawn)


def test_a_cpp_op_stays_outside():
    native = pytest.importorskip("slimexp.pipeline.native.ops")
    if not native.available():
        pytest.skip("the native op has not been built")

    class Native(OwnPreprocessing):
        def finish(self, image, draws):
            sizes, _ = native.read_headers(tf.io.encode_jpeg(image)[tf.newaxis])
            return tf.zeros([8, 8, 3]) + tf.cast(sizes[0, 0], tf.float32)

    assert "has the C++ op SlimexpJpegHeader, whose library" in why_no_bytes(Native(8, is_training=False))


def test_a_saved_model_has_its_preprocessing_inside_and_needs_no_code_of_ours(tmp_path):
    preprocessing = SteppedPreprocessing(OwnPreprocessing(8, is_training=False), [Step("x", halve)])
    task = "multi"
    model = model_of(preprocessing, task)
    folder = tmp_path / "odd [1]*"  # TensorFlow's reader would take that for a pattern.
    folder.mkdir()
    model.save(folder / "model", assets={"labels.txt": "é\nb\n"})
    scorer = SavedModelScorer(folder / "model")
    files = [encoded(smooth(20, 14, seed=seed), "PNG") for seed in range(3)]
    images = [smooth(20, 14, seed=seed) for seed in range(3)]
    finished = tf.stack([preprocessing.finish(tf.constant(np.asarray(image)), tf.zeros([1])) for image in images])
    logits = model.images(finished)["logits"].numpy()
    np.testing.assert_allclose(scorer.of_bytes(files), probabilities(logits, task), atol=1e-6)
    np.testing.assert_allclose(scorer.of_images(finished), probabilities(logits, task), atol=1e-6)
    assert set(scorer.model.signatures) == {IMAGE_BYTES, IMAGES}
    np.testing.assert_allclose(scorer.model.finish(tf.constant(np.asarray(images[0]))), finished[0], atol=1e-6)
    assert scorer.model.window(tf.constant(5), tf.constant(6)).numpy().tolist() == [0, 0, 5, 6]
    assert (folder / "model" / "assets.extra" / "labels.txt").read_text(encoding="utf-8") == "é\nb\n"


def test_without_a_preprocessing_there_is_one_signature():
    assert set(model_of(None).signatures()) == {IMAGES}


def test_probabilities_neither_overflow_nor_sum_to_more_than_one():
    logits = np.array([[1000.0, 0.0], [-1000.0, -999.0]], np.float32)
    np.testing.assert_allclose(probabilities(logits, "single"), [[1, 0], [1 / (1 + np.e), np.e / (1 + np.e)]])
    np.testing.assert_allclose(probabilities(logits, "multi"), [[1, 0.5], [0, 0]])
    np.testing.assert_allclose(probabilities(np.array([[-40.0, 40.0]]), "multi"), [[np.exp(-40), 1]])


def test_of_no_pictures_there_are_no_scores():
    classifier = Classifier(small_net, num_classes=2, image_size=8)
    classifier.build()
    model = ExportedModel(
        lambda images: classifier(images, is_training=False)[0],
        variables=list(classifier.store.variables.values()),
        class_names=["a", "b"],
        task="single",
        image_size=8,
        preprocessing=PlainPreprocessing(8),
    )
    for answer in (model.image_bytes(tf.constant([], tf.string)), model.images(tf.zeros([0, 8, 8, 3]))):
        assert answer["scores"].shape == answer["logits"].shape == (0, 2)
