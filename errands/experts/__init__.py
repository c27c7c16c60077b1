"""Experts: how the turns that a scenario writes are played, well, carelessly, or with mistakes that are mended."""
