"""Looks at every file or record of a dataset once: faults, duplicates, sizes and kinds of pictures, samples to see."""
