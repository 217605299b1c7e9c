"""Skedulr inside of web frameworks: one module each, which imports its framework."""
