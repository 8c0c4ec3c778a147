"""Write the pictures of the documents: `python -m tests.make_pictures`; tests/test_documents.py checks that the files are up to date."""
from pathlib import Path

import autograd_gpu as torch
from autograd_gpu.autograd import graph

DOCS = Path(__file__).parent.parent / "docs"


def network():
    """The graph of a small classifier's loss; the picture depends on no value."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
    loss = torch.nn.functional.cross_entropy(model(torch.ones(128, 64)), torch.zeros(128, dtype=torch.int64))
    return graph.draw(loss, model.named_parameters())


PICTURES = {"graph.svg": network}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        draw().save(DOCS / name)
