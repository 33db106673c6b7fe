"""Which engine settings serve a traffic at the least cost, by bounds and by replays.

engine_points  the space: bits, cache, GPUs and parallelism, batch, token budget, prefix cache, router
cost_bound     a lower bound of the busy time of an engine, which prunes points without a replay
fleet_trials   replays of a fleet of a point on windows of the traffic
vllm_defaults  what vLLM runs without settings, to compare with
point_search   the fewest instances of a point, races of points, and successive halving
"""
