"""Tests of `slimexp.nets`."""
