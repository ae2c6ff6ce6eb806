"""What the product says about itself: log events, metrics, and the probe that tests listen with."""
