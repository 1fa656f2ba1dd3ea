"""The speed of Laxity, measured: `python -m bench`, from the root of the repository."""
