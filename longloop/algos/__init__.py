"""Algorithms, one page each."""
