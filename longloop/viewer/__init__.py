"""The viewer: pages over run folders, as docs/reference/run-format.md describes them. Loads no torch, changes no run."""
