"""The native decoder: one C++ op from the bytes of a batch of JPEGs to its finished images.

`build` finds and builds the library and can be had without TensorFlow; `ops` has the functions.
"""
