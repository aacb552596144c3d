"""Loss as a function of size and tokens: forms, robust fits, intervals, and the simulation that checks the intervals."""
