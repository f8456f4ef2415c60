"""Training: the loop, losses, optimizer, schedule, and the record of each epoch."""
