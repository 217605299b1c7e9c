"""Time inside one process: the wheel, the greenlet that drives it, and what watches the hub."""
