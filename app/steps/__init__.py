"""Durable steps: what a body does through `ctx.step` is recorded, and a later attempt goes on from there."""
