"""Experiments in image classification: Hydra config groups, a working TF-Slim, MLflow."""

__version__ = "0.3.0"
