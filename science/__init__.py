"""The science engine: laws with intervals, forecasts, gates, mixture search. Plain numpy and scipy; it trains nothing.

`trials` and `laws` turn the results of a sweep into a law; `forecasts` freeze what a law says about a run that has not been
trained; `gates` compare a variant with a baseline; `mixtures` search data weights. `published` holds cited numbers of others.
"""
