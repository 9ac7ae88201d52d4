"""Turns a dataset of one form into another: list file, folder of classes, TFRecord files; pictures stay as they are."""

from slimexp.convert.conversion import Report, convert

__all__ = ["Report", "convert"]
