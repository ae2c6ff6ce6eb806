"""One file per page: what it reads of the controls, and the forms it answers."""
