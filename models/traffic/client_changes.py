"""Changes of a what-if to the clients of a trace that hold on all days: scale, share of niw, new apps."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetcast.models.traffic.clients import ClientTraffic
from fleetcast.models.traffic.renewal_arrivals import Spacing
from fleetcast.models.traffic.trace_changes import NewApp, TraceChanges, require_possible_change
from fleetcast.models.traffic.trace_columns import TraceNames


def apply_client_changes(
    traffic: ClientTraffic, changes: TraceChanges, scale: float, names: TraceNames, apps: Sequence[str]
) -> tuple[ClientTraffic, list[str]]:
    """Apply the changes that hold on all days: scale, share of niw, new apps.

    apps : names of the trace's apps; codes of clients are positions in them

    Returns
    -------
    The changed traffic, and the names of all apps, old and new.

    Raises
    ------
    ValueError
        Scale or ratio out of range, or a new app that is like none of the trace or has a known name.
    """
    require_possible_change(0 < scale < np.inf, f"scale is {scale:g}, needs more than 0")
    rate = scale * traffic.requests_per_hour
    if changes.interactive_to_niw is not None:
        is_niw = np.array([tier not in names.interactive for tier in names.tiers])[traffic.tier]
        total, niw = rate.sum(), rate[is_niw].sum()
        require_possible_change(
            0 < niw < total, "interactive_to_niw needs a trace with interactive and niw requests"
        )
        wanted = total / (1 + changes.interactive_to_niw)
        rate = rate * np.where(is_niw, wanted / niw, (total - wanted) / (total - niw))[:, None]
    traffic = dataclasses.replace(traffic, requests_per_hour=rate)
    known, all_apps = list(apps), list(apps)
    total = rate.sum()
    for new in changes.new_apps:
        require_possible_change(
            new.like in known, f"the new app {new.name!r} is like {new.like!r}; known: {', '.join(known)}"
        )
        require_possible_change(new.name not in all_apps, f"the new app {new.name!r} exists already")
        traffic = _with_app(traffic, new, known.index(new.like), len(all_apps), total)
        all_apps.append(new.name)
    return traffic, all_apps


def _with_app(traffic: ClientTraffic, new: NewApp, like: int, code: int, total: float) -> ClientTraffic:
    """Add a copy of the clients of one app, under another code and with its share of `total` requests.

    The copies have the same behaviour but are independent: their senders and levels are copied too.
    """
    copied = np.flatnonzero(traffic.app == like)
    rate = traffic.requests_per_hour[copied]
    per_client: dict[str, Any] = {
        name: np.concatenate([getattr(traffic, name), getattr(traffic, name)[copied]])
        for name in ("region", "llm", "tier", "group", "pool")
    }
    senders, sender = np.unique(traffic.sender[copied], return_inverse=True)
    levels, level = np.unique(traffic.level[copied], return_inverse=True)
    has_level = levels >= 0
    level = np.where(has_level, np.cumsum(has_level) - 1 + traffic.levels.level.deviation.size, -1)[level]
    history = traffic.history
    return dataclasses.replace(
        traffic,
        **per_client,
        app=np.concatenate([traffic.app, np.full(copied.size, code, np.int16)]),
        requests_per_hour=np.concatenate([traffic.requests_per_hour, rate * new.share * total / rate.sum()]),
        sender=np.concatenate([traffic.sender, sender + traffic.spacing.family.size]),
        level=np.concatenate([traffic.level, level]),
        levels=traffic.levels.with_copies(levels[has_level]),
        spacing=Spacing(*(np.concatenate([values, values[senders]]) for values in traffic.spacing)),
        history=history._replace(
            gap_cv=np.concatenate([history.gap_cv, history.gap_cv[senders]]),
            levels=np.concatenate([history.levels, history.levels[levels[has_level]]]),
            input_share=np.concatenate([history.input_share, np.zeros(has_level.sum())]),
        ),
    )
