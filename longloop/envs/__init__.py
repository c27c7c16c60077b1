"""Environments, a file or a folder each."""
