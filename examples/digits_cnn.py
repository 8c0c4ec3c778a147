"""Train a small convolutional network on the handwritten digits of examples/digits.py.

    python -m examples.digits_cnn

Two convolutions, each with batch normalisation, relu and pooling, then one linear map. In training the digits are moved by up to a pixel.
"""
import argparse
import time

import numpy as np

import autograd_gpu as torch
import autograd_gpu.nn.functional as F
from autograd_gpu import nn
from autograd_gpu.utils.data import DataLoader, TensorDataset
from examples.digits import Parser, accuracy, choose, load, place, positive, tqdm


class ConvNet(nn.Module):
    """(batch, 1, 8, 8) -> the scores of the ten classes."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 2 * 2, 10))

    def forward(self, x):
        """The scores."""
        return self.classifier(self.features(x))


def moved(x):
    """Pictures moved by up to a pixel up or down and left or right, at random."""
    rows, columns = torch.randint(0, 3, (2,)).tolist()
    return F.pad(x, (1, 1, 1, 1))[:, :, rows:rows + 8, columns:columns + 8]


def main(argv=None):
    """Train and test; returns the accuracy on the test digits."""
    parser = Parser(prog="digits_cnn", description="Train a small convolutional network on handwritten digits.",
                    formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--epochs", type=positive(int, 10_000), default=15, help="passes over the training digits")
    parser.add_argument("--batch", type=positive(int, 1_437), default=32, help="digits per step")
    parser.add_argument("--lr", type=positive(float, 10), default=0.01, help="largest learning rate")
    parser.add_argument("--seed", type=positive(int, 2**32 - 1, zero=True), default=1, help="of the split, weights and order")
    parser.add_argument("--device", type=place, help="cpu, cuda or cuda:N; without it the GPU if there is one")
    args = parser.parse_args(argv)
    device, why = choose(args.device)
    print(f"device: {device} ({why})")
    torch.manual_seed(args.seed)
    data, test = ((x.reshape(-1, 1, 8, 8), y) for x, y in load(device))
    model = ConvNet().to(device)
    print(f"{model}\n{sum(p.numel() for p in model.parameters()):,} parameters")
    loader = DataLoader(TensorDataset(*data), batch_size=args.batch, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, epochs=args.epochs, steps_per_epoch=len(loader))
    seconds = []
    bar = tqdm(range(args.epochs), desc="training", unit="epoch")
    for _ in bar:
        start = time.perf_counter()
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(moved(x)), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
        seconds.append(time.perf_counter() - start)
        bar.set_postfix(loss=f"{loss.item():.4f}", test=f"{accuracy(model, *test):.1%}")
    found = accuracy(model, *test)
    print(f"test accuracy: {found:.2%}")
    print(f"time per epoch: {np.median(seconds) * 1000:.0f} ms (median of {len(seconds)})")
    return found


if __name__ == "__main__":
    main()
