"""From a checkpoint to a model that someone else can use: graphs, signatures, labels, and a check of all of it."""
