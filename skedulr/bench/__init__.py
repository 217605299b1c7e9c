"""What ``skedulr bench`` measures, on any Redis, in a namespace of its own.

========  ====================================================================
meter     what measured tasks write and the measurer reads: when they started
work      the tasks themselves, loaded by the children of the bench's master
jobs      the ways to submit that are measured
producer  a patched process that does one of them
server    what a Redis says of itself: version, persistence, CPU, memory, bytes
ground    the namespace, refused when in use, removed afterwards; the master
parts     the measurements, one function each, and the figures they give
========  ====================================================================
"""
