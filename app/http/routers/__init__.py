"""One file of routes per resource."""
