"""A study as in a paper: five seeds of each method, a table in LaTeX, curves, and all of it on the disk."""

from pathlib import Path

import edge_sdk as auscult

data = auscult.Fleet.dataset("breast-cancer", devices=3, deal="dirichlet=0.5")
runs = {
    name: auscult.simulate(data, name, rounds=30, seeds=5, plain=True, evaluate_every=5)
    for name in ("fedavg", "ditto", "fedslr")
}
found = auscult.compare(**runs)
Path("table.tex").write_text(found.latex())
Path("figures.html").write_text(f"<!doctype html><meta charset='utf-8'>{found._repr_html_()}")
for name, run in runs.items():
    run.save(Path("study") / name)
print(found.latex())
print(auscult.load("study/ditto").accuracy)
