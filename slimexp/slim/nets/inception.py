"""The Inception networks under one name (arXiv 1409.4842, 1502.03167 and 1512.00567)."""

from __future__ import annotations

from slimexp.slim.nets.inception_v1 import inception_v1, inception_v1_arg_scope, inception_v1_base
from slimexp.slim.nets.inception_v2 import inception_v2, inception_v2_arg_scope, inception_v2_base
from slimexp.slim.nets.inception_v3 import inception_v3, inception_v3_arg_scope, inception_v3_base

__all__ = [
    "inception_v1",
    "inception_v1_arg_scope",
    "inception_v1_base",
    "inception_v2",
    "inception_v2_arg_scope",
    "inception_v2_base",
    "inception_v3",
    "inception_v3_arg_scope",
    "inception_v3_base",
]
