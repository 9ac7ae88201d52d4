"""Fails when it is imported, for the message about that."""

NUMBER = 1 / 0
