"""`python -m marin_assets.cli`: the command line of the lab."""

from marin_assets.cli.app import app

if __name__ == "__main__":
    app()
