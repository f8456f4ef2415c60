"""What training is made of: losses, optimizer, schedule, and what is done after an epoch."""
