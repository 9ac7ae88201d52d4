"""The Inception networks under one name, as scripts for TF-Slim import them.

C. Szegedy et al., arXiv 1409.4842 (v1); S. Ioffe and C. Szegedy, arXiv 1502.03167 (v2); C. Szegedy et al., arXiv
1512.00567 (v3).
"""

from __future__ import annotations

from slimexp.nets.inception_utils import inception_arg_scope
from slimexp.nets.inception_v1 import inception_v1, inception_v1_arg_scope, inception_v1_base
from slimexp.nets.inception_v2 import inception_v2, inception_v2_arg_scope, inception_v2_base
from slimexp.nets.inception_v3 import inception_v3, inception_v3_arg_scope, inception_v3_base

__all__ = [
    "inception_arg_scope",
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
