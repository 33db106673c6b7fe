"""Labels of time axes: days, hours or minutes."""

from fleetcast.assets.pages.figure_style import Axes


def label_days(panel: Axes, short: bool = False) -> None:
    """Label the days on the time axis with their month; `short`: on two lines, without the weekday."""
    from matplotlib.dates import DateFormatter, DayLocator

    panel.xaxis.set_major_locator(DayLocator())
    panel.xaxis.set_major_formatter(DateFormatter("%d\n%b" if short else "%a %d %b"))


def label_hours(panel: Axes) -> None:
    """Label the hours on the time axis."""
    from matplotlib.dates import DateFormatter

    panel.xaxis.set_major_formatter(DateFormatter("%H"))
    panel.set_xlabel("hour of the day, UTC")


def label_minutes(panel: Axes) -> None:
    """Label every 15 minutes on the time axis."""
    from matplotlib.dates import DateFormatter, MinuteLocator

    panel.xaxis.set_major_locator(MinuteLocator(byminute=(0, 15, 30, 45)))
    panel.xaxis.set_major_formatter(DateFormatter("%H:%M"))
