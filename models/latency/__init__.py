"""Seconds from tokens and batch: what one prefill and one decode step take on an instance.

tables    profiles laid out as arrays for the replay; what a profile must obey
roofline  profiles estimated from FLOPs, bandwidth and architecture, for what nobody measured
error     how far profiles may be off, and draws of profiles that are off by so much
"""

from fleetcast.models.latency.profile_tables import LatencyTables, build_latency_tables

__all__ = ["LatencyTables", "build_latency_tables"]
