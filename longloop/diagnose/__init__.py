"""The pre-flight: what would spoil a run, looked for before it starts. checkup.py has the list."""
