"""Search of data weights: designs, surrogates of loss by weights, proposals with intervals, signal to noise, confirmation."""
