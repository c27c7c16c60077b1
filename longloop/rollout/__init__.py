"""How attempts at tasks are made: one episode, and the K attempts of each task."""
