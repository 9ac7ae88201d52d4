"""Tests of `slimexp.slim`."""
