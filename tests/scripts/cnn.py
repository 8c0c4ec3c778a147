"""Shapes in noisy pictures told apart by a small residual network."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH_SIZE, STEPS, SIZE = 32, 50, 16


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class SmallResNet(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.layer1 = BasicBlock(8, 8)
        self.layer2 = BasicBlock(8, 16, stride=2)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(p=0.0)
        self.fc = nn.Linear(16, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, nn.BatchNorm2d):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        x = torch.flatten(self.pool(x), 1)
        return self.fc(self.dropout(x))


def batch(rng):
    """Bars that lie, bars that stand, and crosses, in noise."""
    labels = rng.integers(0, 3, BATCH_SIZE)
    images = rng.normal(0, 0.3, (BATCH_SIZE, 1, SIZE, SIZE)).astype(np.float32)
    for image, label in zip(images, labels):
        row, column = rng.integers(3, SIZE - 3, 2)
        if label != 1:
            image[0, row, 3:-3] += 1
        if label != 0:
            image[0, 3:-3, column] += 1
    return torch.from_numpy(images), torch.from_numpy(labels)


def build():
    return SmallResNet()


def train(model):
    rng = np.random.default_rng(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=STEPS)
    losses = []
    model.train()
    for _ in range(STEPS):
        images, labels = batch(rng)
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad(set_to_none=True)
        output = model(images)
        loss = F.nll_loss(F.log_softmax(output, dim=1), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        images, labels = batch(rng)
        logits = model(images.to(device))
        confidence, predicted = F.softmax(logits, dim=1).max(1)
    print(f"accuracy: {predicted.eq(labels.to(device)).float().mean():.3f}, mean confidence: {confidence.mean().item():.3f}")
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    for step, loss in enumerate(train(build())):
        print(f"step {step:3d}: loss {loss:.4f}")
