"""The processes that run tasks: the master, its children, and what lives inside a child."""
