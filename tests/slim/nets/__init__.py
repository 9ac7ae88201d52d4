"""Tests of `slimexp.slim.nets`."""
