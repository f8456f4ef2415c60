"""Training: the loop, losses, optimizer, schedule, several devices, and the record of epochs."""
