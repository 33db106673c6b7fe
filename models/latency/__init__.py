"""Latency model: seconds of a prefill and of a decode step on an instance, from tokens and batch.

profile_tables     profiles as arrays for the replay, and the rules for a profile
roofline           profiles estimated from FLOPs, bandwidth and architecture, without measurements
composed_profiles  profiles composed from measured kernels
batch_extension    profiles extended to larger batches
pipeline_stages    profiles of pipeline-parallel deployments
latency_errors     errors of profiles, and catalogues sampled with such errors
"""

from fleetcast.models.latency.profile_tables import LatencyTables, build_latency_tables

__all__ = ["LatencyTables", "build_latency_tables"]
