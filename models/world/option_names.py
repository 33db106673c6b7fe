"""Names of forecast methods, solvers and levels that a config may choose. The replay's: mechanisms.py."""

METHOD_NAMES = (  # models/forecast/__init__.py
    *("last_value", "seasonal_naive", "seasonal_naive_day", "seasonal_level", "seasonal_mean", "recent_days"),
    *("bursts", "on_off", "regression", "autoregression", "arima", "adjusted_arima", "harmonic", "stl_ets"),
    "prophet",
)
ENSEMBLES = ("weighted", "choice")  # of these methods: models/forecast/ensemble.py
SOLVERS = ("highs", "cbc")  # models/plan/solver.py
LEVELS_BY_TIER, LEVELS_BY_APP, LEVELS_BY_SHARES = "tier", "app", "shares"  # models/traffic/priority_levels.py
