"""The doctor: looks a service over and says what is wrong with it, each with a repair that works."""
