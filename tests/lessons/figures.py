"""Creates the figures as lessons/figures/figures.toml says, and checks that they are up to date.

    [[figure]]
    file = "ring_4.svg"
    command = "schedule_player --algorithm ring --world 4 --quiet --svg OUT"

A figure of a deterministic program must equal its command's output, byte for byte. A figure of a measurement has
`measured = "MACHINE, YYYY-MM-DD"` and is only redrawn by `make figures MEASURED=1`; its lessons say so in the caption.
"""
import re
import sys
try:
    import tomllib
except ModuleNotFoundError:
    sys.exit(f"lessons: this needs Python 3.11 or newer: python3 is {sys.version.split()[0]}")

import commands
from lesson import ROOT


def plan(root=ROOT):
    path = root / "lessons" / "figures" / "figures.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))["figure"]


def check(build, lessons, update=False, measured=False, root=ROOT):
    faults, drawn, folder_of = [], 0, root / "lessons" / "figures"
    figures = plan(root)
    known = {f["file"] for f in figures}
    for path in sorted(folder_of.glob("*.svg")):
        if path.name not in known:
            faults.append(f"lessons/figures/{path.name}: figures.toml does not say how it is made")
    for figure in figures:
        path = folder_of / figure["file"]
        where = f"lessons/figures/{figure['file']}"
        stamp = figure.get("measured")
        if stamp and not re.search(r", \d{4}-\d\d-\d\d$", stamp):
            faults.append(f"{where}: measured = \"MACHINE, YYYY-MM-DD\"")
        if stamp and not (update and measured):
            if not path.exists():
                faults.append(f"{where} is missing: make figures MEASURED=1 measures it")
            faults += [f"{lesson.name}: shows {figure['file']}, measured: its caption must say {stamp}"
                       for lesson in lessons if f"figures/{figure['file']})" in "\n".join(lesson.lines)
                       and stamp not in " ".join(lesson.lines)]
            continue
        with commands.scratch(build) as folder:
            out = folder.parent / "figure.svg"
            env = commands.environment(folder, build)
            code, lines = commands.run(figure["command"].replace("OUT", str(out)), folder, env)
            new = out.read_bytes() if out.exists() else b""
        drawn += 1
        if code != 0 or not new.startswith(b"<"):
            faults.append(f"{where}: `{figure['command']}` failed:\n" + "\n".join(lines[-5:]))
        elif update:
            if not path.exists() or path.read_bytes() != new:
                path.write_bytes(new)
        elif not path.exists() or path.read_bytes() != new:
            faults.append(f"{where} is not what `{figure['command']}` draws now (make figures)")
    for figure in figures:
        path = folder_of / figure["file"]
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text and "prefers-color-scheme" not in text and "fill=\"#fff" not in text and "<rect" not in text:
            faults.append(f"lessons/figures/{figure['file']}: neither a background nor colours for the dark: "
                          "unreadable there")
    return faults, drawn
