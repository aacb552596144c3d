"""What texts mean, as vectors of an encoder, and documents that say the same in other words."""
