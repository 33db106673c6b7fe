"""Seconds from tokens and batch: what one prefill and one decode step take on an instance.

tables    profiles laid out as arrays for the replay; what a profile must obey
measured  profiles fitted to a grid of measured points, and their held-out error
roofline  profiles estimated from FLOPs, bandwidth and architecture, for what nobody measured
silicon   the roofline's coefficients fitted to measurements of many llms and GPUs
error     how far profiles may be off, and draws of profiles that are off by so much
"""

from fleetcast.models.latency.tables import LatencyTables, tables

__all__ = ["LatencyTables", "tables"]
