"""Verdicts of the hostile bench on a process of a known size (a module that a spawned process can import)."""

import subprocess
import sys

import hostile_verdict


def verdicts_on_a_process() -> tuple[float, hostile_verdict.Verdict, hostile_verdict.Verdict]:
    """GB of this process, the verdict on a process that takes 0.4 GB more, and on nothing after it."""
    begun_gb = hostile_verdict.reset_peak_gb()
    size = int((begun_gb + 0.4) * 1e9)
    program = f"import time; block = b'x' * {size}; sum(range(20_000_000)); assert time.process_time() > 0.2"

    def work() -> str:
        subprocess.run([sys.executable, "-S", "-c", program], check=True)
        return ""

    found = hostile_verdict.verdict_on("a process", work)
    return begun_gb, found, hostile_verdict.verdict_on("nothing", lambda: "")
