"""The user's own agent as an environment: an endpoint that speaks the APIs of model providers. The policy answers."""
