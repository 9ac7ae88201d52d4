"""Tests of `slimexp.slim.data`."""
