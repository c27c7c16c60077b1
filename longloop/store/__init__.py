"""The run folder (docs/reference/run-format.md): `run.py` writes it, `run_reader.py` reads it for everything else."""
