"""`make audit`: vulnerable packages fail it, and so does an audit that could not be made."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
UV = """#!/bin/sh
case "$1" in
export) echo "$*" >> {folder}/exports; while [ "$1" != --output-file ]; do shift; done; echo made > "$2";;
tool) test -s {folder}/audit/requirements.txt || exit 9; printf '{answer}\\n'; exit {code};;
esac
"""


@pytest.mark.parametrize(
    ("answer", "code", "line"),
    [
        ("No known vulnerabilities found", 0, "No known vulnerabilities found"),
        ("Found 1 known vulnerability in 1 package", 1, "Found 1 known vulnerability"),
        ("Found 2 known vulnerabilities in 1 package", 1, "Found 2 known vulnerabilities"),
        ("ERROR jinja2: Dependency not found", 1, "nothing was audited"),
        ("Traceback: Failed to resolve", 0, "nothing was audited"),  # no answer is no good answer
    ],
)
def test_an_audit_says_what_it_found(answer: str, code: int, line: str, tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text(UV.format(folder=tmp_path, answer=answer, code=code))
    uv.chmod(0o700)
    command = ["make", "--silent", "-o", ".venv/ready", "audit", f"UV={uv}", f"AUDIT={tmp_path / 'audit'}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode == 0) == (answer.startswith("No known") and code == 0)
    assert line in ended.stdout
    assert ended.stdout.count("\n") == 1
    exports = (tmp_path / "exports").read_text()
    assert exports.count("--frozen --all-extras") == exports.count("\n") == 2
    assert exports.count("--format cyclonedx1.5") == 1
    assert (tmp_path / "audit" / "sbom.json").read_text() == "made\n"
