"""Skedulr inside of large frameworks: what needs more than one module."""
