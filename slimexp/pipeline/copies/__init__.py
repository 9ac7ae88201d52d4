"""Smaller copies of large photos, kept on disk for later epochs and runs."""
