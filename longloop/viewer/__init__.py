"""The viewer: pages over run folders, which docs/reference/run-format.md describes. Loads no torch, changes no run."""
