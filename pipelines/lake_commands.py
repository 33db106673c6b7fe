"""`fleetcast check`, `explore`, `explain`, `timeline`: verify the lake, show it, explain a late request."""

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from fleetcast.pipelines.options import ConfigOption, DayOption, expand_path, load_settings_and_day
from fleetcast.pipelines.terminal import cli_errors, exit_with_message, short_path
from fleetcast.pipelines.terminal_tables import OUT, format_figure, show_board

SHOWN_FILES = 3  # of those without a digest


def check_command() -> None:
    """Verify that each file of the lake is there with the bytes that were written; name what makes it again.

    Each file's SHA-256 was written before the file was moved into place (data/lake/digests). A nightly run
    verifies the requests and the demand that it reads, and what an earlier run of its day left. A file that
    vanished with its digest is not noticed.

        fleetcast check

    Exit codes: 0 if no file is damaged or missing; 1 if one is.
    """
    with cli_errors():
        from fleetcast.assets.lake.damaged_files import check_lake_files
        from fleetcast.assets.lake.file_digests import DIGESTS_FOLDER
        from fleetcast.assets.lake.warehouse import Lake

        found = check_lake_files(Lake())
        for word, files in (("damaged", found.damaged), ("missing", found.missing)):
            for file, command in files.items():
                OUT.print(f"{word}  {file}", style="red")
                OUT.print(f"         make it again: {command}")
        whole = found.verified - sum(not file.startswith(DIGESTS_FOLDER) for file in found.damaged)
        OUT.print(f"files    {whole:,} of {found.verified:,} are as written")
        if without := found.without_digest:
            names = ", ".join(without[:SHOWN_FILES]) + (" ..." if len(without) > SHOWN_FILES else "")
            OUT.print(f"         {len(without):,} without digest (of 0.1.0, copied, or it is lost): {names}")
    raise typer.Exit(1 if found.broken else 0)


def tidy_command(
    keep_days: Annotated[
        int, typer.Option(help="Replayed days of each trace whose requests stay, the latest.", min=1)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Remove the replayed requests of old days (outcomes, stages). Scores, plans, fleets and traces stay.

    Costs, attainment and the scoreboard of old days stay; marts that need their requests (late requests,
    latencies by tier, cost per request) have nulls or no rows of them. `fleetcast nightly --date DAY` makes a
    day again. Digests whose file is not there go too: run `fleetcast check` before.

        fleetcast tidy --keep-days 60 --dry-run
    """
    with cli_errors():
        from fleetcast.assets.lake.retention import tidy_lake
        from fleetcast.assets.lake.warehouse import Lake

        freed = tidy_lake(Lake(), keep_days, dry_run)
        word = "would free" if dry_run else "freed"
        if dry_run:
            for name in (*freed.files, *freed.digests):
                OUT.print(name)
        OUT.print(
            f"{word}    {freed.size_bytes / 1e6:,.1f} MB: {len(freed.files):,} files of outcomes and legs"
        )
        if freed.digests:
            OUT.print(f"         {len(freed.digests):,} digests without a file")


def explore_command(
    folder: Annotated[
        Path, typer.Argument(help="The project's folder: empty, or one that has such a project.")
    ],
) -> None:
    """Write a Rill project on the lake: a metrics view and a dashboard for each mart, from the SQL headers.

    fleetcast explore ~/fleetcast-rill && rill start ~/fleetcast-rill
    """
    with cli_errors():
        from fleetcast.assets.lake.rill_project import write_rill_project
        from fleetcast.assets.lake.warehouse import Lake

        lake, target = Lake(), expand_path(folder)
        lake.publish()
        shown = write_rill_project(lake, target)
        OUT.print(f"{short_path(target)}: {len(shown)} dashboards   (rill start {short_path(target)})")


def explain_command(
    request: Annotated[int, typer.Argument(help="A request_id of the table outcomes.", metavar="REQUEST")],
    date_: DayOption = None,
    config: ConfigOption = "office",
) -> None:
    """Explain a request's time to first token: deferral, queue, prefill, another region. List its stages if
    several instances served it.

    fleetcast sql sql/queries/why_late.sql   # the latest requests of the day

    fleetcast explain REQUEST_ID
    """
    with cli_errors():
        settings, day = load_settings_and_day(config, date_)
        params = {"trace": settings.trace, "day": day, "request": request}
        delays = settings.lake.sql("queries/why_late.sql", **params)
        if not delays.num_rows:
            exit_with_message(
                f"No replay of {settings.trace} on {day} has a request {request}. "
                "List some ids: fleetcast sql sql/queries/why_late.sql"
            )
        legs = settings.lake.sql("queries/request_legs.sql", **params)
        show_explanation(delays, legs)


def show_explanation(delays: pa.Table, legs: pa.Table) -> None:
    """Print the parts of a request's time to first token, and its stages, under each policy.

    `delays`: rows of queries/why_late.sql, `legs`: rows of queries/request_legs.sql, all of one request.
    """
    rows = delays.to_pylist()
    OUT.print(
        "request {request_id}: {tier} for {llm} from {region}, {arrived_at:%Y-%m-%d %H:%M:%S} UTC, "
        "{input_tokens:,} input tokens, {output_tokens:,} output tokens".format(**rows[0])
    )
    waits = {"TTFT s": "ttft_s", "drafts s": "earlier_s", "deferred s": "held_s", "queued s": "waited_s",
             "prefill s": "prefill_s", "network s": "network_s"}  # fmt: skip
    if not any(row["earlier_s"] for row in rows):
        del waits["drafts s"]
    heads = ("policy", *waits, "queued ahead (tokens)", "prefilled by")
    explained = []
    for row in rows:
        times = (row[name] for name in waits.values())
        ahead = f"{row['ahead']} ({row['ahead_input_tokens']:,})"
        where = f"{row['served_region']} #{row['instance']}" if row["served_region"] else row["status"]
        explained.append(
            (row["policy"], *(format_figure(seconds, ",.2f") for seconds in times), ahead, where)
        )
    show_board("", heads, explained)
    show_legs(legs)
    for row in rows:
        if row["preemptions"]:
            OUT.print(f"{row['policy']}: it was preempted {row['preemptions']} times and started again.")
        if row["booting"] and row["booting"] > 0.01:
            OUT.print(
                f"{row['policy']}: {row['booting']:.2f} instances of its llm were booting in that hour."
            )


def show_legs(legs: pa.Table) -> None:
    """Print the stages of a request under each policy where several instances served it.

    `legs`: rows of queries/request_legs.sql.
    """
    times = ("came_s", "began_s", "first_token_s", "ended_s")
    rows = [
        (
            row["policy"],
            f"{row['leg']} {row['role']}",
            format_figure(row["hand_over_s"], ",.3f"),
            *(format_figure(row[name], ",.2f") for name in times),
            f"{row['llm']} on {row['gpu']}, {row['served_region']} #{row['instance']}",
        )
        for row in legs.to_pylist()
    ]
    if rows:
        heads = ("\npolicy", "\nstage", "KV trans-\nfer s", "\narrived s", "\nin batch s", "1st to-\nken s",
                 "\nended s", "\nwhere")  # fmt: skip
        show_board("stages of the request, seconds from its arrival", heads, rows)


def timeline_command(
    llm: Annotated[str, typer.Option(help="The llm of the requests.")],
    region: Annotated[str, typer.Option(help="The region that served them.")],
    hour: Annotated[int, typer.Option(help="Hour of the day, UTC.", min=0, max=23)],
    policy: Annotated[str, typer.Option(help="The replayed policy.")] = "lt_i",
    date_: DayOption = None,
    config: ConfigOption = "office",
) -> None:
    """Write an hour of one endpoint as a Chrome trace: KV transfer, queue, prefill, decode of every request.

    fleetcast timeline --llm llama3.1-405b-fp8 --region east --hour 19
    """
    with cli_errors():
        from fleetcast.assets.replays.timeline import write_timeline

        settings, day = load_settings_and_day(config, date_)
        path = write_timeline(settings, day, policy, llm, region, hour)
        OUT.print(f"{short_path(path)}   (open it in ui.perfetto.dev or chrome://tracing)")
