"""Every request the client can make, one function each; they only describe it."""
