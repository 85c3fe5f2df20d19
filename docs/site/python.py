"""The pages of the Python interface: what `import edge_sdk` offers, from its docstrings, and the examples."""

from __future__ import annotations

import ast
from pathlib import Path

import edge_sdk

EXAMPLES = Path(__file__).parents[1] / "examples"
PICTURES = {
    "ten_lines": ("A run in a notebook", "python-run.png"),
    "hospital": ("The console of the service", "console-overview.png"),
}
"""Example -> what is to be seen in a picture of docs/, and which."""
GROUPS = {
    "On a workstation": "Fleet simulate Results compare ResultsCompared load method OwnTask METHODS",
    "Devices and hospitals": "Device Hospital ModelsDeclined OwnKept Run RunRefused",
    "Settings of devices and hospitals": "Wire DevicePolicy LocalTraining HospitalPolicy DeviceList Upstream",
    "What a device records and predicts": "Recording Prediction Predictions TrainingBudget StoreLimits",
    "Data and models": "Samples Unlabelled Patients Model SplitModel SGD Adam",
    "Errors": "AuscultError UsageError PeerError StoreUnusable",
}
HEAD = """# Python

For whoever writes code with it. Everything that `import edge_sdk` offers, from its docstrings; the examples are run by
tests. Names load when they are first used. Those of the first part need the extra `replay` and are for a workstation;
[a page of five minutes](first-run.md) begins with them, and [another](python.md) goes on. [A third one](your-app.md) is
about a device's application.
"""
EXAMPLES_HEAD = """# Examples

For whoever learns from code. Each is a script that runs as it stands where `auscult[replay]`
[is installed](first-run.md#install); `hospital.py` needs `auscult[service]` and mosquitto. Tests run them with smaller
settings. Without arrays of your own, begin with the first one.
"""


def python_page() -> str:
    """A heading for each public name, in groups, with what the site's generator puts in its place.

    Raises:
        SystemExit: the groups are not the public names.
    """
    grouped = {name for names in GROUPS.values() for name in names.split()}
    if grouped != {*edge_sdk.__all__}:
        raise SystemExit(f"docs/site/python.py: GROUPS and edge_sdk differ in {grouped ^ {*edge_sdk.__all__}}")
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [
            f"### {name}\n\n::: edge_sdk.{edge_sdk.HOMES[name]}.{name}\n    options:\n      heading_level: 4\n"
            for name in names.split()
        ]
    return "\n".join(parts)


def examples_page() -> str:
    """A heading for each script, with its docstring and its code."""
    parts = [EXAMPLES_HEAD]
    for path in sorted(EXAMPLES.glob("*.py"), key=lambda one: one.stem != "ten_lines"):
        text = path.read_text(encoding="utf-8")
        words = ast.get_docstring(ast.parse(text)) or ""
        title, _, rest = words.partition("\n")
        code = text.partition('"""')[2].partition('"""')[2].strip()
        shown = "![{}]({})\n\n".format(*PICTURES[path.stem]) if path.stem in PICTURES else ""
        parts.append(f"## {title.rstrip('.')}\n\n{rest.strip()}\n\n{shown}`{path.name}`:\n\n```python\n{code}\n```\n")
    return "\n".join(parts)
