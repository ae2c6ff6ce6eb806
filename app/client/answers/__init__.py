"""What the service answers, as typed values: frozen, and blind to fields that a newer service adds."""
