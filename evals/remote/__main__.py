"""`python -m evals.remote`: evaluate a model behind a URL."""

from evals.remote.ask import main

if __name__ == "__main__":
    main()
