"""Figures: pure functions from data to a Matplotlib figure, in one style."""
