"""Decisions: what to do next, given a verdict, the time and drawn uniforms.

Everything here is pure: no clock, no lock, no thread, no randomness of its own. The synchronous
path, the asynchronous path and the simulation run the same functions.
"""
