from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim


@pytest.mark.parametrize(("mode", "fan"), [("FAN_IN", 3 * 3 * 20), ("FAN_OUT", 3 * 3 * 60), ("FAN_AVG", 3 * 3 * 40)])
@pytest.mark.parametrize("uniform", [False, True])
def test_the_variance_is_factor_over_fan(mode, fan, uniform):
    initializer = slim.variance_scaling_initializer(factor=2.0, mode=mode, uniform=uniform, seed=1)
    values = initializer([3, 3, 20, 60]).numpy()
    assert values.shape == (3, 3, 20, 60)
    # 10 800 draws give the variance to within about 2 %.
    np.testing.assert_allclose(values.var(), 2.0 / fan, rtol=0.05)
    stddev = np.sqrt(2.0 / fan)
    limit = np.sqrt(3) * stddev if uniform else 2 * np.sqrt(1.3) * stddev
    assert 0.95 * limit < np.abs(values).max() <= limit


def test_xavier_is_uniform_over_the_mean_of_both_fans():
    values = slim.xavier_initializer(seed=1)([100, 50]).numpy()
    limit = np.sqrt(6 / 150)
    assert 0.99 * limit < np.abs(values).max() <= limit
    assert slim.xavier_initializer_conv2d is slim.xavier_initializer


def test_vectors_and_scalars_have_a_fan_too():
    initializer = slim.variance_scaling_initializer(uniform=True, seed=1)
    assert np.abs(initializer([4]).numpy()).max() <= np.sqrt(6 / 4)
    assert initializer([]).shape == ()


def test_integers_and_unknown_modes_are_refused():
    with pytest.raises(TypeError, match="needs a floating point dtype"):
        slim.xavier_initializer(dtype=tf.int32)
    with pytest.raises(TypeError, match="needs a floating point dtype"):
        slim.xavier_initializer()([2, 2], dtype=tf.int64)
    with pytest.raises(TypeError, match=r"Unknown mode 'FAN'.*FAN_IN, FAN_OUT, FAN_AVG"):
        slim.variance_scaling_initializer(mode="FAN")
