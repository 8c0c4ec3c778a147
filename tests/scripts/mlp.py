"""Three spirals told apart by a multilayer perceptron."""
import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

CLASSES, PER_CLASS, BATCH_SIZE, STEPS = 3, 128, 64, 50


class MLP(nn.Module):
    def __init__(self, in_features=2, hidden=64, depth=2, num_classes=CLASSES):
        super().__init__()
        layers = []
        for i in range(depth):
            layers += [nn.Linear(in_features if i == 0 else hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(hidden, num_classes)
        self.apply(self._init_weights)

    @staticmethod
    def _init_weights(m):
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            nn.init.zeros_(m.bias)

    def forward(self, x):
        return self.head(self.features(x))


def spirals(rng):
    radius = np.linspace(0.1, 1, PER_CLASS)
    points, labels = [], []
    for k in range(CLASSES):
        angle = np.linspace(k * 2 * np.pi / CLASSES, k * 2 * np.pi / CLASSES + 4, PER_CLASS) + rng.normal(0, 0.15, PER_CLASS)
        points.append(np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1))
        labels.append(np.full(PER_CLASS, k))
    return np.concatenate(points).astype(np.float32), np.concatenate(labels)


def build():
    return MLP()


def train(model):
    rng = np.random.default_rng(0)
    x, y = spirals(rng)
    dataset = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = CosineAnnealingLR(optimizer, T_max=STEPS)
    losses = []
    while len(losses) < STEPS:
        model.train()
        for inputs, targets in DataLoader(dataset, batch_size=BATCH_SIZE, sampler=rng.permutation(len(dataset)).tolist(), drop_last=True):
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            if len(losses) == STEPS:
                break
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for inputs, targets in DataLoader(dataset, batch_size=100):
            predicted = torch.argmax(model(inputs.to(device)), dim=1)
            correct += (predicted == targets.to(device)).sum().item()
            total += targets.size(0)
    print(f"accuracy: {100 * correct / total:.1f}%")
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    model = build()
    print(model)
    print(f"{sum(p.numel() for p in model.parameters() if p.requires_grad):,} parameters")
    for step, loss in enumerate(train(model)):
        print(f"step {step:3d}: loss {loss:.4f}")
