"""Training: optimizers, schedules, losses, the step, checkpoints and the loop around them."""
