"""The parts of a page's numbers, and what follows from a plan and a board whoever made them."""

from datetime import date

from fleetcast.assets.advice import coming, judged, lacking, numbers
from fleetcast.assets.advice.brought import Brought
from fleetcast.assets.lake.settings import Settings
from fleetcast.models.aliases import Numbers


def empty(came: Brought) -> Numbers:
    """The numbers of a page of which nothing but the trace is known."""
    return {
        "version": numbers.VERSION,
        "answer": [],
        "trace": numbers.of_trace(came),
        "history": [],
        "tomorrow": None,
        "gpus": [],
        "levels": [],
        "llms": [],
        "board": None,
        "saving": None,
        "certainty": None,
        "profiles": [],
        "watch": None,
        "cannot": [],
        "commands": {},
    }


def tell(settings: Settings, found: Numbers, came: Brought, last: date | None, today: Numbers | None) -> None:
    """What follows from the plan and the board: the saving, how sure it is, what to watch."""
    first, until = came.first_day, came.last_at.date()
    if last is not None and found["board"] is not None:
        found["saving"] = judged.of_saving(settings, last, found["board"], today)
    elif found["tomorrow"] is not None:
        found["saving"] = judged.of_sized(found["tomorrow"], today)
    found["certainty"] = judged.of_certainty(settings, last, found["board"])
    found["profiles"] = lacking.of_profiles(settings)
    found["llms"] = numbers.of_llms(came, settings, first, until)
    found["watch"] = coming.of_watch(settings, found["tomorrow"], first, until)
