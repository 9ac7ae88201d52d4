"""Bytes to pixels: what a picture is by its contents, and the part of it that is wanted."""
