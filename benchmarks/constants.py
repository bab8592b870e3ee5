"""What one constant drug reaches on HIV, as a share of the achievable for each patient.

python benchmarks/constants.py
"""

from __future__ import annotations

import json

import numpy as np

import sept_offline as so
from sept_offline.evaluation import normalise


def main() -> None:
    """A line a split: the mean share of each drug, and of the best drug of each patient."""
    family = so.load_family("hiv")
    if family.make_vec is None or family.references is None:
        raise SystemExit("HIV is shipped with a batch and with references; reinstall.")
    references = json.loads(family.references.read_text(encoding="utf-8"))
    for split in ("validation", "test"):
        hiddens = family.instances(split)
        shares = []
        for drug in range(4):
            env = family.make_vec(hiddens, family.test_steps)
            env.reset(seed=0)
            total = np.zeros(len(hiddens))
            for _ in range(family.test_steps):
                total += env.step(np.full(len(hiddens), drug))[1]
            pairs = zip(total, references[split], strict=True)
            shares.append([normalise(float(r), k["random"], k["reference"]) for r, k in pairs])
        table = np.array(shares, dtype=float)
        drugs = " ".join(f"{share:.3f}" for share in np.nanmean(table, axis=1))
        print(f"{split}: each drug {drugs}; best of each patient {np.nanmax(table, 0).mean():.3f}")


if __name__ == "__main__":
    main()
