"""A program as a user would type it: mypy has to accept it (the configuration names this file), and it runs."""
import numpy as np

import autograd_gpu as torch
import autograd_gpu.nn.functional as F


class Net(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.first = torch.nn.Linear(4, width)
        self.rest = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(width, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.first(x))


def fit(model: Net, x: torch.Tensor, y: torch.Tensor) -> list[str]:
    loss = torch.nn.CrossEntropyLoss()(model.double().train()(x.double()), y)
    loss.backward()
    total: torch.Tensor = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert total.item() > 0
    return [name for name, p in model.named_parameters() if p.grad is not None]


def train(x: torch.Tensor, y: torch.Tensor, where: torch.device) -> float:
    w: torch.Tensor = torch.zeros(4, 3, device=where, requires_grad=True)
    loss = torch.tensor(0.0)
    for _ in range(5):
        loss = F.cross_entropy(F.relu(x @ w), y)
        (g,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w -= 0.1 * (g + 1)
    size: torch.Size = w.shape
    values = w.max(0).values
    assert size.numel() == 12 and values.shape == (3,)
    return float(loss)


def main() -> None:
    array = np.arange(8.0, dtype=np.float32).reshape(2, 4)
    x = torch.from_numpy(array).to(torch.float32)
    print(fit(Net(5), x, torch.tensor([0, 2])))
    print(train(x, torch.tensor([0, 2]), torch.device("cpu")), (x[0, 1:] + 1).sum().item(), 2.0 - x, x.T.reshape(-1).tolist())


if __name__ == "__main__":
    main()
