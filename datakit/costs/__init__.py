"""What the data engine costs at sizes that nobody here can run: measured rates, planned joins, planned requests."""
