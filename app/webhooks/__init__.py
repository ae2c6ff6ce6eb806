"""Deliveries of webhooks: the message, the way it is sent, and the job type that carries it."""
