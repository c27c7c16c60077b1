"""Environments, each a file or a folder, and what they have in common: base, contract, play, react, user_code,
shared."""
