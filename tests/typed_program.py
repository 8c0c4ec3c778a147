"""A program as a user would type it: mypy has to accept it (the configuration names this file), and it runs."""
import numpy as np

import autograd_gpu as torch
import autograd_gpu.nn.functional as F


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
    print(train(x, torch.tensor([0, 2]), torch.device("cpu")), (x[0, 1:] + 1).sum().item(), 2.0 - x, x.T.reshape(-1).tolist())


if __name__ == "__main__":
    main()
