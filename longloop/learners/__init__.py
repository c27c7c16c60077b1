"""What trains: the one object that knows devices, and what it is made of."""
