"""Tests of `slimexp.slim.layers`."""
