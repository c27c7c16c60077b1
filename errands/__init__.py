"""Errands, the embedded default: a stateful world of everyday apps, made from a seed."""
