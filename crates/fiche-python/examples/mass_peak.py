"""A file of nanoAOD as an event store, and a mass peak from random events of it.

    python mass_peak.py nanoAOD.root [-o events.fiche] [--events 2000] [--svg peak.svg]

The file is repacked with all its branches, and compared with what uproot reads. Then events are taken in random order, as a training or a
quick look would do it, with two of some thousand fields: the masses of generated particles and what they are. Those of W bosons lie around 80 GeV.
Without generated particles it is pairs of muons of opposite charge whose mass is looked at: Z bosons lie around 91 GeV.
"""

import argparse
import pathlib

import awkward as ak
import fiche.events
import numpy as np
from fiche.events import root


def masses(events, numbers):
    """Masses in GeV of what makes a peak in these events, and what it is."""
    if "GenPart_mass" in events.keys():
        some = events.take(numbers, ["GenPart_mass", "GenPart_pdgId"], library="ak")
        return ak.to_numpy(ak.flatten(some.GenPart_mass[abs(some.GenPart_pdgId) == 24])), "W bosons"
    names = [f"Muon_{what}" for what in ("pt", "eta", "phi", "charge")]
    some = events.take(numbers, names, library="ak")
    muons = ak.zip({name.removeprefix("Muon_"): some[name] for name in names})
    first, second = ak.unzip(ak.combinations(muons, 2))
    # So light that their own masses do not matter.
    mass = np.sqrt(2 * first.pt * second.pt * (np.cosh(first.eta - second.eta) - np.cos(first.phi - second.phi)))
    return ak.to_numpy(ak.flatten(mass[first.charge != second.charge])), "pairs of muons"


def histogram(values, low, high, bins=30):
    """Lines of text with how many values lie in each range."""
    counts, edges = np.histogram(values, bins, (low, high))
    most = max(counts.max(), 1)
    return [f"{edge:7.1f} {count:6d} {'#' * round(60 * count / most)}" for edge, count in zip(edges, counts)], counts, edges


def svg(counts, edges, title):
    """The same as a picture."""
    most, width = max(counts.max(), 1), 600 / len(counts)
    bars = "".join(
        f'<rect x="{40 + i * width:.1f}" y="{320 - 280 * count / most:.1f}" width="{width:.1f}" height="{280 * count / most:.1f}"/>'
        for i, count in enumerate(counts)
    )
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="680" height="360" font-family="sans-serif" font-size="14">'
            f'<rect width="680" height="360" fill="white"/><text x="40" y="25">{title}</text><g fill="#3a6ea5">{bars}</g>'
            f'<text x="40" y="340">{edges[0]:g} GeV</text><text x="640" y="340" text-anchor="end">{edges[-1]:g} GeV</text></svg>')


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", help="a file of nanoAOD, or FILE:TREE")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="the event store; events.fiche beside the file unless this says otherwise")
    parser.add_argument("--events", type=int, default=2000, help="how many are taken at most")
    parser.add_argument("--svg", type=pathlib.Path, help="a picture of the peak")
    given = parser.parse_args(arguments)
    source = given.file if ":" in given.file else f"{given.file}:Events"
    path = given.output or pathlib.Path(source.rpartition(":")[0]).with_suffix(".fiche")
    if not path.exists():
        report = root.repack(source, path, verify=True)
        print(f"{path}: {report['events']} events of {report['fields']} fields, {report['raw']} bytes of values in {report['bytes']}"
              + (f", in ROOT's baskets {report['root']}" if report["root"] else ""))
    events = fiche.events.open(path)
    random = np.random.default_rng(2026)
    numbers = random.permutation(len(events))[: given.events]
    found, what = masses(events, numbers)
    middle = np.median(found)
    lines, counts, edges = histogram(found, middle - 15, middle + 15)
    title = f"{len(found)} {what} in {len(numbers)} random events, around {middle:.1f} GeV"
    print(title, *lines, sep="\n")
    if given.svg:
        given.svg.write_text(svg(counts, edges, title))


if __name__ == "__main__":
    main()
